"""Keys of a partition's store; big-endian numbers, so that byte order is due order.

Entities stand under `e` and their log key, with the bytes of their newest event as value. All other
families are indexes: functions of the entities (`a b c h j k n o q r x y`), or bookkeeping of scans
(`f p t`), which is outside the state hash. Tenants, pools and job ids never contain NUL (`schemas.ids`).
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NewType

FORMAT = 6
"""Of all keys and values here; another one makes local stores be rebuilt from the log."""
CHECKPOINT = b"m\x00checkpoint"
LAST_TOKEN = b"f\x00token"
"""The highest fencing token granted."""

REZONED_TO = b"f\x00rezoned"
"""The newest job that a pass over new time zone data has looked at, NUL, and how many of its tenant moved."""

_MINUTE = struct.Struct(">I")
_TIME = struct.Struct(">Q")
_PRIORITY = {"HIGH": b"\x00", "NORMAL": b"\x01", "LOW": b"\x02"}
PRIORITIES: tuple[str, ...] = tuple(_PRIORITY)

MINUTE_MS = 60_000


def after(prefix: bytes) -> bytes:
    """The first key behind every key that begins with `prefix` (which must not end in 0xff)."""
    return prefix[:-1] + bytes((prefix[-1] + 1,))


def entity(key: str) -> bytes:
    """`e` + log key."""
    return b"e" + key.encode()


@lru_cache(maxsize=4_096)  # few tenants are busy at a time
def queue_prefix(pool_key: str, priority: str, tenant: str) -> bytes:
    return b"q" + pool_key.encode() + b"\x00" + _PRIORITY[priority] + tenant.encode() + b"\x00"


def queued(prefix: bytes, due_ms: int, execution_id: str) -> bytes:
    """Runnable executions of a pool (`<owner>/<pool>`), by priority and tenant (`queue_prefix`)."""
    return prefix + _TIME.pack(due_ms) + execution_id.encode()


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
    """Executions of a job that are not final, the busy ones first; without a one-off's own while that is
    busy, which is known by its id (`State.active_first`)."""
    return b"o" + job_key.encode() + b"\x00" + standing + execution_id.encode()


def claim_prefix(owner: str, worker_id: str, claim_id: str) -> bytes:
    return b"c" + "\x00".join((owner, worker_id, claim_id)).encode() + b"\x00"


def claim(owner: str, worker_id: str, claim_id: str, tenant: str, execution_id: str) -> bytes:
    """Running executions by the claim that got them; `owner` is the pool's, whose workers they are."""
    return claim_prefix(owner, worker_id, claim_id) + f"{tenant}/{execution_id}".encode()


def manual_prefix(job_key: str, kind: str) -> bytes:
    return b"k" + job_key.encode() + b"\x00" + kind.encode() + b"\x00"


def manual(job_key: str, kind: str, execution_id: str) -> bytes:
    """Triggered executions by the request that triggered them, as long as they are known."""
    return manual_prefix(job_key, kind) + execution_id.encode()


LINES = b"n"


@lru_cache(maxsize=4_096)  # asked for every request and grant, and few pools are busy at a time
def backlog(pool_key: str, priority: str, tenant: str) -> bytes:
    """How many executions of a tenant and priority are runnable in the pool."""
    return LINES + pool_key.encode() + b"\x00" + _PRIORITY[priority] + tenant.encode()


def split_line(key: bytes) -> tuple[str, str, str]:
    """Pool, priority and tenant of a backlog key."""
    end = key.index(b"\x00", 1)
    return key[1:end].decode(), PRIORITIES[key[end + 1]], key[end + 2 :].decode()


def running_of_tenant(tenant: str) -> bytes:
    """How many executions of the tenant run, in all pools."""
    return b"rt" + tenant.encode()


def running_in_pool(pool_key: str) -> bytes:
    """How many executions of the pool run."""
    return b"rp" + pool_key.encode()


def running_in_shared(pool_key: str, tenant: str) -> bytes:
    """How many executions of the tenant run in a pool that is not its own."""
    return running_in_pool(pool_key) + b"\x00" + tenant.encode()


BREAKERS, LEASES = b"yb", b"yl"
"""How many records of circuit breakers and of heartbeats there are: if none, nobody need look for one."""


@lru_cache(maxsize=4_096)  # few tenants are busy at a time
def unfinished_of_tenant(tenant: str) -> bytes:
    """How many executions stand in `open_execution` for all jobs of the tenant; if none, nobody need look for
    a job's."""
    return b"yo" + tenant.encode()


def held_back_prefix(tenant: str, target: str) -> bytes:
    return b"h" + f"{tenant}\x00{target}\x00".encode()


def held_back(tenant: str, target: str, due_ms: int, execution_id: str) -> bytes:
    """Executions that a circuit breaker holds back."""
    return held_back_prefix(tenant, target) + _TIME.pack(due_ms) + execution_id.encode()


@lru_cache(maxsize=4_096)
def jobs_of_tenant(tenant: str) -> bytes:
    """How many living jobs the tenant has."""
    return b"jt" + tenant.encode()


@lru_cache(maxsize=4_096)
def jobs_in_pool(tenant: str, pool: str) -> bytes:
    """How many living jobs of the tenant have this pool as target."""
    return b"jp" + f"{tenant}/{pool}".encode()


HOLDS, CALLED, WAITS = b"\x00", b"\x01", b"\x02"
"""Where an execution stands in its exclusion group: running, in its pool's queue, or waiting for the slot."""


def group_prefix(group_key: str, standing: bytes) -> bytes:
    return b"x" + group_key.encode() + b"\x00" + standing


def group_holder(group_key: str, execution_id: str) -> bytes:
    """The running execution of an exclusion group (`<tenant>/<group>`)."""
    return group_prefix(group_key, HOLDS) + execution_id.encode()


def group_pool_prefix(group_key: str, standing: bytes, pool: str) -> bytes:
    return group_prefix(group_key, standing) + pool.encode() + b"\x00"


def group_member(group_key: str, standing: bytes, pool: str, due_ms: int, execution_id: str) -> bytes:
    """Pending executions of an exclusion group, by pool and due time: a pool without workers must not hold
    up the members in another."""
    return group_pool_prefix(group_key, standing, pool) + _TIME.pack(due_ms) + execution_id.encode()


def group_pool(key: bytes, prefix: bytes) -> str:
    """The pool in the key of a pending member, behind `group_prefix`."""
    return key[len(prefix) : key.index(b"\x00", len(prefix))].decode()


def due_and_id(key: bytes, prefix: bytes) -> tuple[int, str]:
    """The end of a key in due order, behind its prefix."""
    return _TIME.unpack_from(key, len(prefix))[0], key[len(prefix) + 8 :].decode()


ACTIVE, WAITING = 1, 1 << 32
"""What an active execution of a job, and one that waits for another one of it, count in `unfinished`."""


def unfinished(job_key: str) -> bytes:
    """How many executions stand in `open_execution`: two numbers in one, since both are asked for at once."""
    return b"a" + job_key.encode()


def minute_prefix(stream: bytes, minute: int) -> bytes:
    return b"t" + stream + _MINUTE.pack(minute)


Lane = NewType("Lane", str)
"""Timers of one priority and tenant stand together, so that a pass can give lanes their turns."""


@lru_cache(maxsize=4_096)
def lane(priority: str, tenant: str) -> Lane:
    return Lane(chr(_PRIORITY[priority][0] + ord("0")) + tenant)


def priority_of_lane(lane: Lane) -> str:
    return PRIORITIES[ord(lane[0]) - ord("0")]


@lru_cache(maxsize=4_096)  # what is filed at the same time is filed side by side
def lane_prefix(stream: bytes, minute: int, lane: Lane) -> bytes:
    return minute_prefix(stream, minute) + lane.encode() + b"\x00"


def timer(stream: bytes, filed_ms: int, lane: Lane, log_keys: str) -> bytes:
    """Time bucket entry: minute, lane, instant, and the log keys of the entities to look at, with a NUL
    between any two. Since all of them are in it, no entry takes the place of another one."""
    return lane_prefix(stream, filed_ms // MINUTE_MS, lane) + _TIME.pack(filed_ms) + log_keys.encode()


def minute_of(timer_key: bytes) -> int:
    return int(_MINUTE.unpack_from(timer_key, 2)[0])


def split_timer(timer_key: bytes) -> tuple[Lane, int, str]:
    """Lane, filed instant and log keys of a time bucket entry."""
    end = timer_key.index(b"\x00", 6)
    lane = Lane(timer_key[6:end].decode())
    return lane, _TIME.unpack_from(timer_key, end + 1)[0], timer_key[end + 9 :].decode()


def position(stream: bytes, minute: int, lane: Lane) -> bytes:
    """The newest handled entry of a lane in a minute."""
    return b"p" + stream + _MINUTE.pack(minute) + lane.encode()


def positions_from(stream: bytes, minute: int) -> bytes:
    return b"p" + stream + _MINUTE.pack(minute)


def scan_floor(stream: bytes) -> bytes:
    """The instant that a stream's passes have reached."""
    return b"f" + stream
