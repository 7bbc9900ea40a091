"""Takes away the limits of a tenant on a server that is measured or tested under load."""

from schemas import codec
from schemas.commands import ConfigureTenant
from schemas.topics import Topics, partition_of
from streams.ambient import new_id
from streams.core import limits
from streams.transport.log import Log, LogError, Outgoing

WRITE_SEC = 15.0


def lift(log: Log, topics: Topics, partitions: int, *tenants: str) -> None:
    """Asks each tenant's home partition for the highest limits there are; they hold a moment later."""
    writer = log.plain_writer()
    try:
        for tenant in tenants:
            command = ConfigureTenant(
                command_id=new_id(),
                tenant=tenant,
                actor="service:dev",
                max_running=limits.RUNNING[1],
                max_jobs=limits.JOBS[1],
                registrations_per_sec=limits.REGISTRATIONS_PER_SEC[1],
            )
            home = partition_of(tenant, "", 1, partitions)
            writer.send(Outgoing(topics.commands, home, tenant.encode(), codec.encode(command)))
        if not writer.flush(WRITE_SEC):
            raise LogError("the limits could not be written")
    finally:
        writer.close()
