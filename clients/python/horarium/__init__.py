"""Client and worker library of Horarium.

`Client` and `AsyncClient` speak the whole API; `App` runs handlers; `TestContext` tests them.
"""

from horarium.app import App
from horarium.client import AsyncClient, Client
from horarium.context import Context
from horarium.errors import (
    ApiError,
    BadRequest,
    Conflict,
    ConnectionFailed,
    FieldError,
    Forbidden,
    HorariumError,
    IdempotencyKeyReused,
    InvalidAnswer,
    NotFound,
    PreconditionFailed,
    RateLimited,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from horarium.exchange import VERSION as __version__
from horarium.exchange import RetryRules
from horarium.models import (
    Attempt,
    Backfill,
    BatchItem,
    Claimed,
    Event,
    Execution,
    Grants,
    Job,
    LastExecution,
    LeaseAnswer,
    Occurrence,
    Occurrences,
    Page,
    Partition,
    Preview,
    Previewed,
    ScheduledTask,
    TzShift,
    TzShifts,
)
from horarium.results import Completed, Fail, Failed, NonRetryable, Snooze
from horarium.schedules import At, Cron, Delay, Every, JobSpec, RetryPolicy
from horarium.tenant_calls import NONE
from horarium.tenant_models import Alert, Breaker, Lateness, OwnTenant, Pool, Stats, TenantSettings
from horarium.testing import TestContext
from horarium.work_calls import Beat, Outcome
from horarium.worker import Worker

__all__ = [
    "NONE",
    "Alert",
    "ApiError",
    "App",
    "AsyncClient",
    "At",
    "Attempt",
    "Backfill",
    "BadRequest",
    "BatchItem",
    "Beat",
    "Breaker",
    "Claimed",
    "Client",
    "Completed",
    "Conflict",
    "ConnectionFailed",
    "Context",
    "Cron",
    "Delay",
    "Event",
    "Every",
    "Execution",
    "Fail",
    "Failed",
    "FieldError",
    "Forbidden",
    "Grants",
    "HorariumError",
    "IdempotencyKeyReused",
    "InvalidAnswer",
    "Job",
    "JobSpec",
    "LastExecution",
    "Lateness",
    "LeaseAnswer",
    "NonRetryable",
    "NotFound",
    "Occurrence",
    "Occurrences",
    "Outcome",
    "OwnTenant",
    "Page",
    "Partition",
    "Pool",
    "PreconditionFailed",
    "Preview",
    "Previewed",
    "RateLimited",
    "RetryPolicy",
    "RetryRules",
    "ScheduledTask",
    "Snooze",
    "Stats",
    "TenantSettings",
    "TestContext",
    "TooLarge",
    "TzShift",
    "TzShifts",
    "Unauthorized",
    "Unavailable",
    "Worker",
    "__version__",
]
