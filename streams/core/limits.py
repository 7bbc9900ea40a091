"""Named limits of the engine, each with its reason. `semantics.md` §7 is the source of the ranges."""

from __future__ import annotations

# What a tenant may send. Their sum stays well below the broker's 1 MiB, which limits a whole batch.
PAYLOAD_BYTES_MAX = 256 * 1024
RESULT_BYTES_MAX = 16 * 1024
ERROR_CHARS_MAX = 8 * 1024  # longer ones are cut, not refused: a failure must always be reportable
PROGRESS_BYTES_MAX = 4 * 1024
LABELS_MAX = 16
LABEL_NAME_CHARS_MAX = 63
LABEL_VALUE_CHARS_MAX = 255
NAME_CHARS_MAX = 100
TASK_CHARS_MAX = 100
CONTENT_TYPE_CHARS_MAX = 255
WORKER_ID_CHARS_MAX = 200
KEY_CHARS_MAX = 255
REASON_CHARS_MAX = 1_000
CRON_CHARS_MAX = 500

# Ranges of policies, inclusive.
MAX_ATTEMPTS = (1, 10_000)
BACKOFF_BASE_SEC = (1, 86_400)
BACKOFF_FACTOR = (1.0, 100.0)
BACKOFF_MAX_SEC = (1, 604_800)
MAX_DELIVERIES = (1, 100)
TIMEOUT_SEC = (1, 604_800)
LEASE_SEC = (1, 3_600)
MISFIRE_WINDOW_SEC = (0, 2_592_000)
EVERY_SEC = (1, 31_536_000)
QUEUE_LIMIT = (1, 1_000)
MAX_CONCURRENT = (0, 10_000)  # 0: the tenant's cap alone
START_DEADLINE_SEC = (0, 31_536_000)  # 0: none
JITTER_SEC = (0, 86_400)
MAX_RUNS = (1, 2**31 - 1)
RELEASE_DELAY_SEC = (0, 604_800)
YEARS_AHEAD_MAX = 100
SCHEDULE_DELAY_SEC = (0, YEARS_AHEAD_MAX * 31_536_000)
PARK_SEC = (0, 60)
CREDIT = (0, 1_000)
EPOCH = (0, 2**63 - 1)
COUNTER = (0, 2**53)  # of requests and grants: counted on from there

WEIGHT = (1, 1_000_000)
SHARDS = (1, 1_024)
RUNNING = (1, 1_000_000)
JOBS = (0, 1_000_000_000)  # 0: registration is closed
REGISTRATIONS_PER_SEC = (1, 1_000_000)
LATENESS_ALERT_SEC = (1, 86_400)
ALERT_TARGET_CHARS_MAX = 2_000
POOLS_CONFIGURED_MAX = 1_000  # all of them stand in one record of the tenant

HORIZON_MS = YEARS_AHEAD_MAX * 365 * 86_400_000
PAST_MS_MAX = 86_400_000  # a one-off further back is a mistake, unless allowPast says otherwise

# What one decision may do: no command touches more entities, larger work is cut up by its caller.
ENTITIES_PER_COMMAND_MAX = 1_000
SLOTS_PER_REQUEST_MAX = 1_000

# Time.
MISFIRE_THRESHOLD_MS = 10_000  # due longer ago than this before it could be decided: missed
MISFIRE_KEPT_MAX = 1_000  # of an outage, the newest are made up for
ALLOWED_CATCH_UP_MAX = 100  # kept misfires of an ALLOW job without maxConcurrent run at a time
ANSWERS_KEPT_MAX = 16  # keyed commands of a job that a repeat can be answered from
REDELIVERY_WAIT_MAX_MS = 60_000  # 1, 2, 4 … seconds from the second redelivery on
FORGET_AFTER_MS = 86_400_000  # finished executions and jobs; the floor of idempotency keys
DEAD_LETTER_FORGET_AFTER_MS = 30 * 86_400_000
DEAD_LETTER_WARN_MS = 7 * 86_400_000  # before that
ALERT_FORGET_AFTER_MS = 7 * 86_400_000  # the read model keeps them for longer
PROBES_MAX = 3  # executions by which a breaker sees whether its target is well
SWEEP_MS = 10_000  # how often pending executions are looked at for lateness
WHEEL_AHEAD_MS = 60_000  # timers nearer than this sit in memory
WHEEL_LANE_MAX = (
    2_000  # entries per priority, tenant and minute; the rest stays in the store until these were handled
)
AFTER_ERROR_MS = 60_000  # what raised when its time came is looked at again, not in a tight loop
INTEREST_MS = 15_000  # askers renew every 5 s: two may be lost
GRANT_REPLY_BYTES_MAX = 700 * 1024  # a reply record stays below the broker's 1 MiB with all its framing
GRANTS_REMEMBERED_MAX = 4_096  # newest grants of a session that it may not have seen yet

if PAYLOAD_BYTES_MAX + RESULT_BYTES_MAX + ERROR_CHARS_MAX * 4 + PROGRESS_BYTES_MAX > GRANT_REPLY_BYTES_MAX:
    raise AssertionError("one grant must fit one reply")
