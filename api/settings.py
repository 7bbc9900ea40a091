"""Owns the variables of an API process, on top of those that all parts share (`streams.config`)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import NoDecode

from api.auth import KeyEntry, parse_keys
from streams.config import CommonSettings


class ApiSettings(CommonSettings):
    """Where it listens, whose keys it knows, and where it reads."""

    http_host: str = "127.0.0.1"
    http_port: int = Field(default=8321, ge=0, le=65_535)
    dev_keys: Annotated[SecretStr, NoDecode] = SecretStr("")
    """`tenant=key[:role[:pool+pool]],…`; without any, every call is 401."""
    database_url: str = ""
    """SQLAlchemy URL of the read model; a SQLite file in the data folder if left out."""
    log_level: str = Field(default="INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$")

    @field_validator("dev_keys")
    @classmethod
    def _keys_are_keys(cls, value: SecretStr) -> SecretStr:
        parse_keys(value.get_secret_value())
        return value

    @property
    def keys(self) -> tuple[KeyEntry, ...]:
        return parse_keys(self.dev_keys.get_secret_value())

    @property
    def read_model_url(self) -> str:
        return self.database_url or f"sqlite:///{self.data / 'projections.db'}"
