"""API keys for development: given in HORARIUM_DEV_KEYS, or made once and kept in the data folder.

The format is `tenant=key[:role[:pool+pool]]`, entries parted by commas; without a role a key is its
tenant's own. The API reads the same text from the same variable.
"""

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "HORARIUM_DEV_KEYS"
TENANT_ROLE = "tenant"
OPERATOR_ROLE = "operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One entry."""

    tenant: str
    key: str
    role: str = TENANT_ROLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """All keys of one development server, and the text the server is told them with."""

    text: str
    entries: tuple[Key, ...]

    def first(self, role: str = TENANT_ROLE) -> Key | None:
        """The first key with that role."""
        return next((entry for entry in self.entries if entry.role == role), None)


def parse(text: str) -> Keys:
    """Reads the format above; the server checks it again, with roles and pools."""
    entries = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        tenant, equals, rest = entry.partition("=")
        key, _, right = rest.partition(":")
        if not (tenant and equals and key):
            raise ValueError(f"{VARIABLE}: an entry is not tenant=key[:role[:pool+pool]]")
        entries.append(Key(tenant=tenant, key=key, role=right.partition(":")[0] or TENANT_ROLE))
    return Keys(text=text, entries=tuple(entries))


def load_or_make(data_dir: Path) -> Keys:
    """The keys of the environment, else those kept under `data_dir`, made at the first start."""
    given = os.environ.get(VARIABLE)
    if given:
        return parse(given)
    path = data_dir / "keys"
    if not path.exists():
        data_dir.mkdir(parents=True, exist_ok=True)
        # Written aside and moved into place, so that a crash leaves no half a key.
        fresh = data_dir / "keys.new"
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"default=hk_{_random()},default=hk_{_random()}:{OPERATOR_ROLE}\n")
        fresh.rename(path)
    return parse(path.read_text().strip())


def _random() -> str:
    return secrets.token_urlsafe(24)
