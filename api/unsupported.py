"""Owns what the API names but this version does not do yet: refused with a clear 400, never ignored.

Looked for in the plain tree of a body, before types: a member that is not built is no unknown member.
"""

from __future__ import annotations

from typing import Any

from api.problems import invalid, wrong
from schemas.replies import FieldProblem

NOT_SUPPORTED = "not_supported"
TARGET_NOT_SUPPORTED = "target_not_supported"

_TARGET_MEMBERS = ("http", "topic", "key")


def check_job(tree: dict[str, Any]) -> None:
    """Raises the 400 for whatever a job's body names that is not built."""
    target = tree.get("target")
    if isinstance(target, dict):
        found = [name for name in _TARGET_MEMBERS if name in target]
        if found:
            raise invalid(
                *(_unbuilt(f"target.{name}", "only worker pools are built") for name in found),
                code=TARGET_NOT_SUPPORTED,
            )
    schedule = tree.get("schedule")
    if isinstance(schedule, dict) and isinstance(schedule.get("cron"), list):
        raise wrong("schedule.cron", "is one cron expression per job; register a job for each")


def check_members(tree: dict[str, Any], *names: str) -> None:
    """Raises the 400 for members of other bodies that are not built."""
    problems = [_unbuilt(name) for name in names if name in tree]
    if problems:
        raise invalid(*problems, code=NOT_SUPPORTED)


def _unbuilt(field: str, why: str = "is not built yet") -> FieldProblem:
    return FieldProblem(field=field, detail=why)
