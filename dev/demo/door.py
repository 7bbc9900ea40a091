"""The other door: a job registered by a trusted service, as a command record on Kafka."""

import json
import os
import uuid

from horarium import Delay

from dev.demo.mix import POOL, Planned
from schemas import codec
from schemas.commands import RegisterJob, RegisterMode, ScheduleSpec
from schemas.entities import Content, Policies, RetryJitter, RetryPolicy
from schemas.replies import CommandDone
from schemas.topics import Topics, partition_of
from streams.transport.log import Isolation, Log, LogError, Outgoing, TopicPartition

ANSWER_SEC = 15.0
POLL_SEC = 0.2


class Refused(Exception):
    """The partition did not take the command, or did not answer."""


def register(log: Log, topics: Topics, tenant: str, shards: int, planned: Planned) -> None:
    """Sends the command to the partition of its job and waits for what that decides."""
    assert isinstance(planned.spec.schedule, Delay)
    session = f"demo-{uuid.UUID(bytes=os.urandom(16), version=4)}"
    replies = TopicPartition(topics.replies, 0)
    retry = RetryPolicy(
        max_attempts=4, backoff_base_sec=1, backoff_factor=1.0, backoff_max_sec=1, jitter=RetryJitter.NONE
    )
    command = RegisterJob(
        command_id=str(uuid.UUID(bytes=os.urandom(16), version=4)),
        tenant=tenant,
        actor="service:demo",
        reply_partition=replies.partition,
        session=session,
        job_id=planned.job_id,
        mode=RegisterMode.PUT,
        schedule=ScheduleSpec(delay_sec=planned.spec.schedule.seconds),
        pool=POOL,
        content=Content(
            name=planned.job_id,
            task="quick",
            payload=json.dumps({"door": "kafka"}).encode(),
            content_type="application/json",
        ),
        policies=Policies(lease_sec=10, retry=retry),
    )
    partition = partition_of(tenant, planned.job_id, shards, log.partitions(topics.commands))
    reader = log.reader(Isolation.UNCOMMITTED)
    writer = log.plain_writer()
    try:
        reader.assign({replies: log.end_offset(replies, Isolation.UNCOMMITTED)})
        sent: list[LogError | None] = []
        writer.send(
            Outgoing(topics.commands, partition, tenant.encode(), codec.encode(command)),
            lambda offset, error: sent.append(error),
        )
        if not writer.flush(ANSWER_SEC) or sent != [None]:
            raise Refused(f"the broker did not take the command: {sent}")
        tries = int(ANSWER_SEC / POLL_SEC)
        for _ in range(tries):
            for record in reader.poll(100, POLL_SEC):
                answer = codec.decode(record.value or b"")
                if isinstance(answer, CommandDone) and answer.command_id == command.command_id:
                    if answer.code:
                        raise Refused(f"{answer.status} {answer.code}: {answer.detail}")
                    return
        raise Refused("no answer came")
    finally:
        reader.close()
        writer.close()
