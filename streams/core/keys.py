"""Keys of a partition's store; big-endian numbers, so that byte order is due order.

Entities stand under `e` and their log key, with the bytes of their newest event as value. All other
families are indexes: functions of the entities (`a b c k n o q`), or bookkeeping of scans (`f p t`) that
is outside the state hash. Tenants, pools and job ids never contain NUL (`schemas.ids`).
"""

from __future__ import annotations

import struct

FORMAT = 1
"""Of all keys and values here; another one makes local stores be rebuilt from the log."""
CHECKPOINT = b"m\x00checkpoint"
LAST_TOKEN = b"f\x00token"
"""The highest fencing token granted."""

REZONED_TO = b"f\x00rezoned"
"""The newest job that a pass over new time zone data has looked at."""

_MINUTE = struct.Struct(">I")
_TIME = struct.Struct(">Q")
_PRIORITY = {"HIGH": b"\x00", "NORMAL": b"\x01", "LOW": b"\x02"}
PRIORITIES = tuple(_PRIORITY)

MINUTE_MS = 60_000


def after(prefix: bytes) -> bytes:
    """The first key behind every key that begins with `prefix` (which must not end in 0xff)."""
    return prefix[:-1] + bytes((prefix[-1] + 1,))


def entity(key: str) -> bytes:
    """`e` + log key."""
    return b"e" + key.encode()


def queue_prefix(pool_key: str, priority: str) -> bytes:
    return b"q" + pool_key.encode() + b"\x00" + _PRIORITY[priority]


def queue(pool_key: str, priority: str, due_ms: int, execution_id: str) -> bytes:
    """Runnable executions of a pool (`<tenant>/<pool>`)."""
    return queue_prefix(pool_key, priority) + _TIME.pack(due_ms) + execution_id.encode()


def queued_id(key: bytes, prefix: bytes) -> str:
    return key[len(prefix) + 8 :].decode()


def blocked_prefix(job_key: str) -> bytes:
    return b"b" + job_key.encode() + b"\x00"


def blocked(job_key: str, scheduled_ms: int, execution_id: str) -> bytes:
    """Executions that wait for an earlier one of their job (`<tenant>/<jobId>`)."""
    return blocked_prefix(job_key) + _TIME.pack(scheduled_ms) + execution_id.encode()


BUSY, IN_LINE, OUTSIDE = b"\x00", b"\x01", b"\x02"
"""Where an open execution stands in its job: in front, in the limited line for overlap, or outside of it."""


def open_prefix(job_key: str, standing: bytes = b"") -> bytes:
    return b"o" + job_key.encode() + b"\x00" + standing


def open_execution(job_key: str, standing: bytes, execution_id: str) -> bytes:
    """Executions of a job that are not final; the busy ones first, so that one look finds them."""
    return open_prefix(job_key, standing) + execution_id.encode()


def claim_prefix(tenant: str, worker_id: str, claim_id: str) -> bytes:
    return b"c" + "\x00".join((tenant, worker_id, claim_id)).encode() + b"\x00"


def claim(tenant: str, worker_id: str, claim_id: str, execution_id: str) -> bytes:
    """Running executions by the claim that got them."""
    return claim_prefix(tenant, worker_id, claim_id) + execution_id.encode()


def manual_prefix(job_key: str, kind: str) -> bytes:
    return b"k" + job_key.encode() + b"\x00" + kind.encode() + b"\x00"


def manual(job_key: str, kind: str, execution_id: str) -> bytes:
    """Triggered executions by the request that triggered them, as long as they are known."""
    return manual_prefix(job_key, kind) + execution_id.encode()


def backlog(pool_key: str) -> bytes:
    """How many executions of the pool are runnable."""
    return b"n" + pool_key.encode()


def active(job_key: str) -> bytes:
    """How many executions of the job are neither final nor waiting for another one of it."""
    return b"a" + job_key.encode()


def waiting(job_key: str) -> bytes:
    """How many executions of the job wait for another one of it."""
    return b"a" + job_key.encode() + b"\x00w"


def minute_prefix(stream: bytes, minute: int) -> bytes:
    return b"t" + stream + _MINUTE.pack(minute)


def tenant_prefix(stream: bytes, minute: int, tenant: str) -> bytes:
    return minute_prefix(stream, minute) + tenant.encode() + b"\x00"


def timer(stream: bytes, filed_ms: int, tenant: str, key: str) -> bytes:
    """Time bucket entry: minute, tenant, instant, and the log key of the entity to look at."""
    return tenant_prefix(stream, filed_ms // MINUTE_MS, tenant) + _TIME.pack(filed_ms) + key.encode()


def minute_of(timer_key: bytes) -> int:
    return int(_MINUTE.unpack_from(timer_key, 2)[0])


def split_timer(timer_key: bytes) -> tuple[str, int, str]:
    """Tenant, filed instant and log key of a time bucket entry."""
    end = timer_key.index(b"\x00", 6)
    return timer_key[6:end].decode(), _TIME.unpack_from(timer_key, end + 1)[0], timer_key[end + 9 :].decode()


def position(stream: bytes, minute: int, tenant: str) -> bytes:
    """The newest handled entry of a tenant in a minute."""
    return b"p" + stream + _MINUTE.pack(minute) + tenant.encode()


def positions_from(stream: bytes, minute: int) -> bytes:
    return b"p" + stream + _MINUTE.pack(minute)


def scan_floor(stream: bytes) -> bytes:
    """The instant that a stream's passes have reached."""
    return b"f" + stream
