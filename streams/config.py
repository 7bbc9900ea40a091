"""Settings from the environment: read once, validated, frozen.

Owns the variables that processors, API and projections share (`CommonSettings`) and those of a processor.
May not know what the parts do with them. The API and the projections derive their own class from
`CommonSettings`. `load` turns a bad value into one message that names the variable.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from schemas.ids import TENANT
from schemas.topics import Topics
from streams.core.limits import JITTER_SEC

PREFIX = "HORARIUM_"
PARTITIONS_MAX = 1_024
"""Each partition is a database with its own buffers; no installation needs more."""

# A part of transactional ids and of folder names; no dot, since dots separate the parts of the id.
_INSTANCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


class SettingsError(Exception):
    """A variable is missing or wrong; the message names it and says what would be accepted."""


class CommonSettings(BaseSettings):
    """What every part of an installation must agree on."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore", env_ignore_empty=True)

    kafka: str = Field(min_length=1)
    namespace: str = "horarium"
    partitions: int = Field(default=8, ge=1, le=PARTITIONS_MAX)
    replication: int = Field(default=1, ge=1, le=9)
    data: Path = Path(".horarium")

    @field_validator("namespace")
    @classmethod
    def _namespace_fits_topics(cls, value: str) -> str:
        Topics(value)
        return value

    @property
    def topics(self) -> Topics:
        return Topics(self.namespace)

    @classmethod
    def load(cls) -> Self:
        """From the environment; SettingsError names every variable that is wrong."""
        try:
            return cls()  # type: ignore[call-arg]  # what it lacks comes from the environment
        except ValidationError as error:
            raise SettingsError(_explain(error)) from None


class ProcessorSettings(CommonSettings):
    """A processor: who it is, and what it shows of itself."""

    instance: str = "p0"
    """Stable over restarts: transactional ids and the state folder are named after it (architecture §5.5)."""
    dev_shards: Annotated[dict[str, int], NoDecode] = {}
    """`tenant=k,…`: tenants made at the first start of a development server."""
    dev_jitter: Annotated[dict[str, int], NoDecode] = {}
    """`tenant=seconds,…`: jitter of a tenant's 5-field cron jobs that name none."""
    snapshot_dir: str = ""
    """Where snapshots are kept: a folder, or the URL of a bucket and a prefix in it. Empty: nowhere."""
    snapshot_sec: int = Field(default=300, ge=0, le=86_400)
    """How often one is taken of each partition. 0: never, but those that are there are used."""
    metrics_host: str = "127.0.0.1"
    metrics_port: int = Field(default=0, ge=0, le=65_535)
    """0: no metrics endpoint."""
    log_level: str = Field(default="INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$")

    @field_validator("instance")
    @classmethod
    def _instance_is_a_name(cls, value: str) -> str:
        if not _INSTANCE.fullmatch(value):
            raise ValueError(f"{value!r}: letters, digits, '_' and '-', at most 63 characters")
        return value

    @field_validator("dev_shards", mode="before")
    @classmethod
    def _split_shards(cls, value: object) -> object:
        return parse_shards(value) if isinstance(value, str) else value

    @field_validator("dev_jitter", mode="before")
    @classmethod
    def _split_jitter(cls, value: object) -> object:
        return parse_jitter(value) if isinstance(value, str) else value

    @property
    def group(self) -> str:
        """The processors' consumer group."""
        return f"{self.namespace}.processors"

    @property
    def transactional_id(self) -> str:
        return transactional_id(self.namespace, self.instance)

    @property
    def state_folder(self) -> Path:
        """One process a folder; several instances may share HORARIUM_DATA."""
        return self.data / "state" / self.instance


def transactional_id(namespace: str, instance: str) -> str:
    """Stable per instance, so that whoever takes over can end what a dead one left open (§5.5)."""
    return f"{namespace}.{instance}.0"


def parse_shards(text: str) -> dict[str, int]:
    """`tenant=k,tenant=k`; ValueError says what is wrong with it."""
    return _by_tenant(text, "<shards>, such as acme=4", (1, PARTITIONS_MAX))


def parse_jitter(text: str) -> dict[str, int]:
    """`tenant=seconds,…`; ValueError says what is wrong with it."""
    return _by_tenant(text, "<seconds>, such as acme=30", JITTER_SEC)


def _by_tenant(text: str, form: str, bounds: tuple[int, int]) -> dict[str, int]:
    numbers: dict[str, int] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        tenant, _, number = entry.partition("=")
        fits = number.isascii() and number.isdigit() and bounds[0] <= int(number) <= bounds[1]
        if not TENANT.fullmatch(tenant) or not fits:
            raise ValueError(f"{entry!r} is not <tenant>={form}")
        if numbers.setdefault(tenant, int(number)) != int(number):
            raise ValueError(f"tenant {tenant!r} is named twice with different numbers")
    return numbers


def _explain(error: ValidationError) -> str:
    lines = []
    for problem in error.errors():
        name = PREFIX + "_".join(str(part) for part in problem["loc"]).upper()
        if problem["type"] == "missing":
            lines.append(f"{name} is not set")
        else:
            message = problem["msg"].removeprefix("Value error, ")
            lines.append(f"{name}: {message}")
    return "; ".join(lines)
