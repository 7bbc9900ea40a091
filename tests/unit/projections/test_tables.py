"""The tables keep all that the entities say."""

import pytest
from sqlalchemy import Table

from projections.history_tables import alerts, attempts, skips
from projections.tables import breakers, contents, definitions, executions, jobs, leases
from projections.views import Attempt
from schemas.entities import Alert, Breaker, Cursor, Execution, Job, KeptContent, Lease, Skip

# Kept elsewhere, in another form, or by the engine alone.
ELSEWHERE = {"skips", "content", "answered", "priority"}


@pytest.mark.parametrize(
    ("entity", "tables"),
    [
        (Job, [jobs, definitions]),
        (Cursor, [jobs]),
        (Execution, [executions]),
        (Lease, [leases]),
        (KeptContent, [contents]),
        (Skip, [skips]),
        (Alert, [alerts]),
        (Breaker, [breakers]),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
def test_every_attribute_has_a_column(entity: type, tables: list[Table]) -> None:
    columns = {column.name for table in tables for column in table.c}
    assert set(entity.__struct_fields__) - ELSEWHERE <= columns  # type: ignore[attr-defined]


def test_content_has_columns() -> None:
    assert {"name", "task", "payload", "content_type", "labels"} <= {column.name for column in definitions.c}
    assert {"name", "task", "payload", "content_type", "labels"} <= {column.name for column in contents.c}


def test_an_attempt_shows_every_column() -> None:
    columns = {column.name for column in attempts.c} - {"tenant", "execution_id"}
    assert set(Attempt.__dataclass_fields__) == columns
