"""A request for work is never granted more than it offers, whatever is lost, repeated or taken over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from schemas.commands import RequestWork
from tests.simulation.checking.causes import Said
from tests.simulation.journal import Granting

Place = tuple[str, str, int, int]
"""Session, pool, partition and number of a request."""


def check_offers(words: Sequence[Sequence[Said]], grants: Sequence[Granting]) -> Iterator[str]:
    """`words`: all of `work` by partition; `grants`: as they were heard of."""
    offered: dict[Place, dict[str, int]] = {}
    for partition, said in enumerate(words):
        for _, _, command in said:
            if isinstance(command, RequestWork):
                place = (command.session, command.pool, partition, command.seq)
                offered[place] = {slot.worker_id: slot.credit for slot in command.slots}
    made: dict[tuple[Place, str], set[tuple[str, str, int]]] = defaultdict(set)
    for granting in grants:
        execution = granting.execution
        place = (granting.session, granting.pool, granting.partition, granting.seq)
        grant = (execution.tenant, execution.execution_id, execution.lease_epoch)
        made[place, execution.worker_id].add(grant)
    for (place, worker_id), granted in made.items():
        most = offered.get(place, {}).get(worker_id, 0)
        if len(granted) > most:
            yield f"{worker_id} was granted {len(granted)} under request {place}, which offers {most}"
