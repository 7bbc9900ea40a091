"""Owns the variables of an API process, on top of those that all parts and the read model have."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import NoDecode

from api.auth import KeyEntry, parse_keys
from projections.settings import ProjectionSettings


class ApiSettings(ProjectionSettings):
    """Where it listens, and whose keys it knows."""

    http_host: str = "127.0.0.1"
    http_port: int = Field(default=8321, ge=0, le=65_535)
    dev_keys: Annotated[SecretStr, NoDecode] = SecretStr("")
    """`tenant=key[:role[:pool+pool]],…`; without any, every call is 401."""

    @field_validator("dev_keys")
    @classmethod
    def _keys_are_keys(cls, value: SecretStr) -> SecretStr:
        parse_keys(value.get_secret_value())
        return value

    @property
    def keys(self) -> tuple[KeyEntry, ...]:
        return parse_keys(self.dev_keys.get_secret_value())
