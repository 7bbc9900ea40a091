"""What the engine asks of the store: each question costs as much as some twenty calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from streams.core.engine import READ_AHEAD, Engine
from streams.store.memory import MemoryStore
from tests.unit.core.world import TENANT, World

HERD = 20


class CountingStore(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()
        self.together = 0

    def get(self, key: bytes) -> bytes | None:
        self.asked[key.decode(errors="replace")] += 1
        return super().get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self.together += bool(keys)
        return [self.get(key) for key in keys]


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


def test_due_jobs_that_are_not_in_memory_are_read_together() -> None:
    """With their cursors, and each once; what is in memory is not read at all."""
    world = World()
    world.store = store = CountingStore()
    world.engine = Engine(0, store, world.engine.state._codec, world.router)
    count = READ_AHEAD + 1
    for number in range(count):
        world.register(f"j{number}", delay_sec=60)
        world.register(f"c{number}", cron="0 * * * * *")
    world.at(60)
    store.asked.clear()
    store.together = 0
    world.at(120)
    assert store.together == 0
    world.engine.state.forget_decoded()
    world.at(180)
    assert store.together == 2
    due = {key: asked for key, asked in store.asked.items() if key.startswith(("ejob:", "ecursor:"))}
    assert due == {f"e{kind}:{TENANT}/c{number}": 1 for kind in ("job", "cursor") for number in range(count)}
