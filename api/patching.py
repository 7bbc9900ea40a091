"""Owns JSON merge patch (RFC 7396) on a job's definition.

Merged as bytes: what a patch does not name, the payload above all, stays exactly as it was sent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from api import bodies, rendering
from api.models import JobBody, ScheduleBody
from schemas.entities import Job

_NULL = b"null"
_KINDS = ("cron", "everySec", "runAt", "delaySec")
_SCHEDULE = ScheduleBody.__struct_encode_fields__
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


def patched(job: Job, patch: bytes) -> JobBody:
    """The job's definition with the patch on it, as a body that could have been posted."""
    base, given = _definition(job), _members.decode(patch)
    # One thing in several spellings: naming one takes the others away.
    _choose(base, given, ("payload", "payloadBase64"), ("contentType",))
    schedule: dict[str, Any] = base["schedule"]
    changed = bytes(given.get("schedule", b"{}"))
    changes = _members.decode(changed) if _is_object(changed) else {}
    _choose(schedule, changes, _KINDS, ("timeZone",))
    if "runAt" in schedule and "runAt" not in changes:
        schedule["allowPast"] = True  # it was accepted once
    return bodies.typed(merged(msgspec.json.encode(base), patch), JobBody)


def _choose(
    base: dict[str, Any], given: Mapping[str, msgspec.Raw], kinds: Collection[str], beside: Collection[str]
) -> None:
    named = {name for name in kinds if name in given and bytes(given[name]) != _NULL}
    if named and not named & base.keys():
        for name in (*kinds, *beside):
            base.pop(name, None)


def merged(target: bytes, patch: bytes) -> bytes:
    """The target with the patch on it. Both are valid JSON."""
    if not _is_object(patch):
        return patch
    members = _members.decode(target) if _is_object(target) else {}
    for name, value in _members.decode(patch).items():
        if bytes(value) == _NULL:
            members.pop(name, None)
        else:
            members[name] = msgspec.Raw(merged(bytes(members.get(name, _NULL)), bytes(value)))
    return msgspec.json.encode(members)


def _is_object(data: bytes) -> bool:
    return data.lstrip()[:1] == b"{"


def _definition(job: Job) -> dict[str, Any]:
    """The body that means this definition."""
    shown = msgspec.to_builtins(rendering.job_at_beginning(job))
    base = {name: shown[name] for name in JobBody.__struct_encode_fields__ if name in shown}
    base["schedule"] = {name: shown["schedule"][name] for name in _SCHEDULE if name in shown["schedule"]}
    # A tenant's default was taken when the schedule was resolved: it stays what it is.
    base["schedule"].setdefault("jitterSec", 0)
    content = rendering.content_members(job.content)
    if "payload" in content:
        return base | {"payload": content["payload"]}
    if content:
        return base | {"payloadBase64": content["payload_base64"], "contentType": content["content_type"]}
    return base
