"""All that is checked of a run, together: the events in log order, what callers were told, what workers said.

The promises that the log alone can be held against are judged by the checker that users have
(`projections.checker`); here is what needs more than the log: the brokers' clock, the records that caused the
events, the answers, and the states of living processes. Nothing here knows the workload.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from projections.checker.checker import Checker
from schemas import codec
from schemas.commands import WorkCommand
from schemas.events import ExecutionDeadLettered, TenantConfigured
from streams.ambient import Chance
from streams.transport.log import Isolation, Record, TopicPartition
from tests.simulation.checking.causes import Said, Words, check_causes
from tests.simulation.checking.clocks import check_clocks
from tests.simulation.checking.offers import check_offers
from tests.simulation.checking.replay import check_compaction, check_forgetting
from tests.simulation.checking.replies import check_replies
from tests.simulation.history import Happened
from tests.simulation.world import World

OF_NEWER_ZONE_DATA = "occurrences while zone data changed"
"""As the checker says it; `check_zones` looks at those."""
GRACE_MS = 10_000
"""What was due so shortly before the end of the run may not be decided yet."""


def violations(world: World) -> Iterator[str]:
    """Everything that is wrong with a run that is over. Its partitions' live states were compared by then."""
    slack_ms = world.hazards.clock_slack_ms
    parts = world.history.of
    words = [_said(world, number) for number in range(world.partitions)]
    yield from _check_log(world, words)
    yield from check_replies(parts, world.journal)
    chance = Chance(world.seed)
    for number, (part, said) in enumerate(zip(parts, words, strict=True)):
        yield from check_clocks(part, slack_ms)
        yield from check_causes(part, Words(said), slack_ms)
        yield from check_compaction(part, world.replicas.whole(number), world.history.readings, chance)
        yield from check_forgetting(part, world.history.readings, world.agenda.now_ms, chance)
    yield from check_offers(words, world.journal.grants)
    for number, part in enumerate(parts):
        for record in _all(world, world.topics.quarantine, number):
            yield f"partition {number}: set aside: {record.headers['reason'].decode()}"
        given_up = sum(isinstance(each.event, ExecutionDeadLettered) for each in part)
        sent = len(_all(world, world.topics.dead_letters, number))
        if sent != given_up:
            yield f"partition {number}: {given_up} executions were given up, {sent} sent as dead letters"


def _check_log(world: World, words: Sequence[Sequence[Said]]) -> Iterator[str]:
    checker = Checker(oracle=world.oracle)
    for partition, said in enumerate(words):
        for offset, _, command in said:
            checker.word(partition, offset, command)
    for happened in heapq.merge(_tenants(world), *world.history.of, key=_stamp):
        if happened.event is None:
            checker.forgotten(happened.key)
        else:
            checker.take(happened.partition, happened.event)
    report = checker.finish(world.agenda.now_ms, drained=True, grace_ms=GRACE_MS)
    for violation in report.violations:
        yield str(violation)
    for reason, count in report.unjudged.items():
        if reason != OF_NEWER_ZONE_DATA:
            yield f"{count} could not be judged: {reason}"


def _stamp(happened: Happened) -> int:
    return happened.stamped_ms


def _tenants(world: World) -> Iterator[Happened]:
    """The settings that tenants began with, as a partition of their own; changes are events of their home."""
    for record in _all(world, world.topics.tenants, 0):
        event = codec.decode(record.value or b"")
        if isinstance(event, TenantConfigured) and not event.configured.version:
            yield Happened(-1, record.offset, record.timestamp_ms, "", record.value, event, None)


def _said(world: World, partition: int) -> list[Said]:
    said = []
    for record in _all(world, world.topics.work, partition):
        command = codec.decode(record.value or b"")
        if not isinstance(command, WorkCommand):
            raise TypeError(f"{type(command).__name__} in the work topic")
        said.append(Said(record.offset, record.timestamp_ms, command))
    return said


def _all(world: World, topic: str, partition: int) -> list[Record]:
    reader = world.log.reader(Isolation.COMMITTED)
    tp = TopicPartition(topic, partition)
    reader.assign({tp: world.log.start_offset(tp)})
    return reader.poll(1_000_000, 0)
