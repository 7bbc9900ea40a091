"""Owns the settings of the read side; the API derives its own from these."""

from __future__ import annotations

from pydantic import Field, field_validator

from projections.retention import DEFAULT_DETAIL_DAYS
from projections.store import check_url
from streams.config import CommonSettings


class ProjectionSettings(CommonSettings):
    """Where the read model is, and how long it keeps details."""

    database_url: str = ""
    """`sqlite:///<path>` or `postgresql+psycopg://…`; empty: a SQLite file in HORARIUM_DATA."""
    detail_days: int = Field(default=DEFAULT_DETAIL_DAYS, ge=1)
    """Executions, grants, events: kept this long after their end; their counts by day stay."""
    log_level: str = Field(default="INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$")

    @field_validator("database_url")
    @classmethod
    def _is_a_database(cls, value: str) -> str:
        if value:
            check_url(value)
        return value

    @property
    def store_url(self) -> str:
        """The URL that `Store` opens."""
        return self.database_url or f"sqlite:///{(self.data / 'projections.db').absolute()}"
