"""What the engine asks of the store: each question costs as much as some twenty calls."""

from __future__ import annotations

from collections import Counter

from streams.core.engine import Engine
from streams.store.memory import MemoryStore
from tests.unit.core.world import TENANT, World

HERD = 20


class CountingStore(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()

    def get(self, key: bytes) -> bytes | None:
        self.asked[key.decode(errors="replace")] += 1
        return super().get(key)


def test_a_one_off_asks_the_store_for_little() -> None:
    """What the entities say, or was read before, is not asked for: own payloads of what is neither triggered
    nor given up, heartbeats of what had none, an entity that was made here."""
    world = World()
    world.store = store = CountingStore()
    world.engine = Engine(0, store, world.engine.state._codec, world.router)
    for number in range(HERD):
        world.register(f"j{number}", delay_sec=60)
    store.asked.clear()
    world.at(60)
    grants = world.claim(count=HERD)
    for grant in grants:
        assert world.complete(grant).status == 200
    assert len(grants) == HERD
    assert not [key for key in store.asked if key.startswith(("elease:", "epay:"))]
    # Nor how many of the job's executions are unfinished: none of the tenant's is counted.
    assert not [key for key in store.asked if f"{TENANT}/j7" in key]
