"""All that is checked of a run, together: the events in log order, what callers were told, what workers said.

The checkers know nothing of the workload but which jobs' overlap was asked to be overridden.
"""

from __future__ import annotations

from collections.abc import Iterator

from streams.ambient import Chance
from streams.transport.log import Isolation, Record, TopicPartition
from tests.simulation import jobs
from tests.simulation.checking.causes import Words, check_causes
from tests.simulation.checking.executions import check_executions
from tests.simulation.checking.occurrences import check_occurrences
from tests.simulation.checking.overlap import check_overlap
from tests.simulation.checking.replay import check_compaction
from tests.simulation.checking.replies import check_replies
from tests.simulation.world import World


def violations(world: World) -> Iterator[str]:
    """Everything that is wrong with a run that is over. Its partitions' live states were compared by then."""
    slack_ms = world.hazards.clock_slack_ms
    parts = world.history.of
    yield from check_executions(parts, slack_ms)
    yield from check_overlap(parts, lambda job_id: job_id.startswith(jobs.OVERRIDDEN))
    yield from check_replies(parts, world.journal)
    chance = Chance(world.seed)
    for number, part in enumerate(parts):
        yield from check_causes(part, Words(_all(world, world.topics.work, number)), slack_ms)
        yield from check_occurrences(part, world.agenda.now_ms)
        yield from check_compaction(part, chance)
    for number in range(world.partitions):
        for record in _all(world, world.topics.quarantine, number):
            yield f"partition {number}: set aside: {record.headers['reason'].decode()}"


def _all(world: World, topic: str, partition: int) -> list[Record]:
    reader = world.log.reader(Isolation.COMMITTED)
    tp = TopicPartition(topic, partition)
    reader.assign({tp: world.log.start_offset(tp)})
    return reader.poll(1_000_000, 0)
