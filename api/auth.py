"""Owns who is asking: tenant, actor, role and pools, from the Bearer key alone.

Keys are kept as keyed digests and found by them, so that neither timing nor a dump of memory tells one. They
are never logged. Which role may do what is said at each endpoint.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from starlette.requests import Request

from api.problems import Problem, wrong
from schemas.ids import POOL, SHARED, TENANT, is_shared

_MAX_KEY_CHARS = 512


class Role(enum.StrEnum):
    """What a key may do (`api.md`)."""

    TENANT = "tenant"
    WORKER = "worker"
    AUDITOR = "auditor"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who is asking. `pools`: those a worker key is for, all of its tenant or all of them shared; empty means
    every pool of the tenant."""

    tenant: str
    actor: str
    role: Role
    pools: frozenset[str] = frozenset()

    def may_work_on(self, pool: str) -> bool:
        """Whether the key may claim from the pool; a shared one has to be named."""
        return pool in self.pools or not (self.pools or is_shared(pool))

    @property
    def serves_all(self) -> bool:
        """Whether it is a worker of shared pools: what it holds belongs to any tenant."""
        return any(is_shared(pool) for pool in self.pools)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyEntry:
    """One key as configured; its text is left out of every representation."""

    tenant: str
    key: str = field(repr=False)
    role: Role = Role.TENANT
    pools: frozenset[str] = frozenset()


class Keyring:
    """All keys of this process."""

    def __init__(self, entries: Iterable[KeyEntry]) -> None:
        self._pepper = secrets.token_bytes(32)
        self._callers: dict[bytes, tuple[bytes, Caller]] = {}
        for entry in entries:
            digest = self._digest(entry.key)
            caller = Caller(tenant=entry.tenant, actor=_actor(entry), role=entry.role, pools=entry.pools)
            self._callers[digest] = (digest, caller)

    def __len__(self) -> int:
        return len(self._callers)

    def find(self, key: str) -> Caller | None:
        """Whose key it is."""
        digest = self._digest(key)
        known, caller = self._callers.get(digest, (b"", None))
        return caller if hmac.compare_digest(known, digest) else None

    def _digest(self, key: str) -> bytes:
        return hmac.digest(self._pepper, key.encode("utf-8", "surrogateescape"), "sha256")


def parse_keys(text: str) -> tuple[KeyEntry, ...]:
    """`tenant=key[:role[:pool+pool]],…`; ValueError names the entry by number, never by its text."""
    entries = []
    for number, part in enumerate(filter(None, (part.strip() for part in text.split(","))), 1):
        tenant, equals, rest = part.partition("=")
        key, _, right = rest.partition(":")
        role, _, pools = right.partition(":")
        if not TENANT.fullmatch(tenant) or not equals or not key or len(key) > _MAX_KEY_CHARS:
            raise ValueError(f"entry {number} is not tenant=key[:role[:pool+pool]]")
        if tenant == SHARED:  # its pools would be the caller's own
            raise ValueError(f"entry {number}: {SHARED!r} is no tenant, pools that serve all have this owner")
        if (role or Role.TENANT) not in list(Role):
            raise ValueError(f"entry {number}: the role is one of {', '.join(Role)}")
        names = frozenset(filter(None, pools.split("+")))
        if not all(POOL.fullmatch(name) for name in names):
            raise ValueError(f"entry {number}: a pool is [A-Za-z0-9._-]{{1,100}} or shared/<such a name>")
        if names and role != Role.WORKER:
            raise ValueError(f"entry {number}: only a worker key is for named pools")
        if len({is_shared(name) for name in names}) > 1:
            raise ValueError(f"entry {number}: a key is for pools of its tenant or for shared ones, not both")
        entries.append(KeyEntry(tenant=tenant, key=key, role=Role(role or Role.TENANT), pools=names))
    keys = [entry.key for entry in entries]
    if len(set(keys)) != len(keys):
        raise ValueError("two entries have the same key")
    return tuple(entries)


def requires(*roles: Role) -> Callable[[Request], Awaitable[Caller]]:
    """A dependency: the caller, if the key has one of the roles; 401 or 403 otherwise."""

    # Async although it awaits nothing: the framework would run a plain function in a thread.
    async def find(request: Request) -> Caller:
        caller = _authenticated(request)
        if caller.role not in roles:
            raise Problem(403, "forbidden", f"a {caller.role} key may not do this; {' or '.join(roles)} may")
        return caller

    return find


def read_tenant(request: Request, caller: Caller) -> str:
    """Whose things are read: an auditor may name any tenant, everybody else reads their own."""
    asked = request.query_params.get("tenant")
    if caller.role is not Role.AUDITOR:
        return caller.tenant
    if asked is not None and not TENANT.fullmatch(asked):
        raise wrong("tenant", "is [a-z0-9][a-z0-9-]*, at most 40 characters")
    return asked or caller.tenant


def _authenticated(request: Request) -> Caller:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    keyring: Keyring = request.app.state.services.keyring
    caller = keyring.find(key.strip()) if scheme.lower() == "bearer" and key else None
    if caller is None:
        raise Problem(
            401,
            "unauthorized",
            "Authorization: Bearer <key> is needed, with a key that is known",
            headers={"WWW-Authenticate": "Bearer"},
        )
    return caller


def _actor(entry: KeyEntry) -> str:
    # Eight digits name a key in the history without being of use to whoever reads them.
    digest = hashlib.sha256(b"horarium actor\x00" + entry.key.encode()).hexdigest()
    return f"{entry.role}:{entry.tenant}:{digest[:8]}"
