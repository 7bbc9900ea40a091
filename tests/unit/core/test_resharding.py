"""Other shards of a tenant: never while a job would be looked for elsewhere, whoever hears of it how late."""

from __future__ import annotations

import itertools
import random  # noqa: TID251 seeded
from typing import Any

import pytest

from schemas import codec
from schemas.commands import ConfigureTenant, JobCommand, RegisterJob, ScheduleSpec
from schemas.entities import Content, Policies, Tenant
from schemas.events import TenantConfigured
from schemas.ids import job_key
from schemas.replies import CommandDone
from schemas.topics import partition_of, tenant_partitions
from streams.core.effects import Answer
from streams.core.engine import Engine
from streams.core.transaction import Source
from streams.store.memory import MemoryStore
from tests.unit.core.world import TENANT

PARTITIONS = 4
CLOSED = "registration_open"


class Process:
    """A partition, and what its process has heard of the tenants topic."""

    def __init__(self, number: int, topic: list[Tenant]) -> None:
        self.number = number
        self.heard = len(topic)
        self._topic = topic
        self._store = MemoryStore()
        self._offset = itertools.count()
        self.engine = Engine(number, self._store, codec, self)

    def settings_of(self, tenant: str) -> Tenant:
        assert tenant == TENANT
        return self._topic[self.heard - 1]

    def partition_of(self, tenant: str, job_id: str) -> int:
        return partition_of(tenant, job_id, self.settings_of(tenant).shards, PARTITIONS)

    def partitions_of(self, tenant: str) -> list[int]:
        return tenant_partitions(tenant, self.settings_of(tenant).shards, PARTITIONS)

    def hear(self) -> None:
        self.heard = min(self.heard + 1, len(self._topic))

    def run(self, command: JobCommand) -> CommandDone:
        self.engine.begin(0, lambda: 0.0)
        self.engine.decide(command, Source("commands", next(self._offset), 0))
        decided = self.engine.decided()
        self._store.write(self.engine.commit())
        self.engine.written()
        for event in decided.events:
            told = codec.decode(event.value or b"")
            if isinstance(told, TenantConfigured):
                self._topic.append(told.configured)
        (effect,) = decided.effects
        assert isinstance(effect, Answer)
        assert isinstance(effect.reply, CommandDone)
        return effect.reply


class Parts:
    """All partitions, each in a process of its own."""

    def __init__(self, shards: int = 1, **settings: Any) -> None:
        self.topic = [Tenant(tenant=TENANT, shards=shards, version=1, **settings)]
        self.processes = [Process(number, self.topic) for number in range(PARTITIONS)]
        self.jobs: dict[str, int] = {}
        self._numbers = itertools.count()

    @property
    def newest(self) -> Tenant:
        return self.topic[-1]

    def home(self) -> int:
        return tenant_partitions(TENANT, 1, PARTITIONS)[0]

    def configure(self, partition: int | None = None, **settings: Any) -> CommandDone:
        """At home, unless it is another partition that is asked."""
        command = ConfigureTenant(**self._who(), **settings)
        return self.processes[self.home() if partition is None else partition].run(command)

    def reshard(self, shards: int, seen: Tenant, between: Any = lambda: None) -> CommandDone:
        """As a caller does it that has seen these settings; `between` any two commands something happens."""
        for partition in tenant_partitions(TENANT, seen.shards, PARTITIONS)[1:]:
            done = self.configure(partition, shards=shards, version=seen.version)
            between()
            if done.code:
                return done
        return self.configure(shards=shards, version=seen.version)

    def register(self, shards: int, job_id: str = "") -> CommandDone:
        """By a caller that believes in so many shards."""
        job_id = job_id or f"job-{next(self._numbers)}"
        command = RegisterJob(
            **self._who(),
            job_id=job_id,
            schedule=ScheduleSpec(every_sec=60),
            pool="default",
            content=Content(name="n", task="t"),
            policies=Policies(),
        )
        partition = partition_of(TENANT, job_id, shards, PARTITIONS)
        done = self.processes[partition].run(command)
        if not done.code:
            self.jobs[job_id] = partition
        return done

    def all_hear(self) -> None:
        for process in self.processes:
            process.heard = len(self.topic)

    def lost(self) -> list[str]:
        """Jobs that nobody looks for where they are."""
        return [
            job_id
            for job_id, partition in self.jobs.items()
            if partition != partition_of(TENANT, job_id, self.newest.shards, PARTITIONS)
            and self.processes[partition].engine.state.knows(job_key(TENANT, job_id))
        ]

    def _who(self) -> dict[str, Any]:
        return {
            "command_id": f"c{next(self._numbers)}",
            "tenant": TENANT,
            "actor": "test",
            "reply_partition": 0,
            "session": "s",
        }


def test_a_new_tenant_gets_its_shards_and_its_home_holds_to_them_before_it_hears_of_them() -> None:
    parts = Parts()
    assert parts.configure(shards=4).status == 200
    refused = parts.register(shards=1)
    assert (refused.status, refused.code) in {(409, "misrouted"), (503, "settings_changed")}
    parts.processes[parts.home()].heard = 2
    assert {parts.register(shards=4).code for _ in range(9)} <= {"", "misrouted"}
    assert not parts.lost()


def test_more_than_one_change_only_while_registration_is_closed_everywhere() -> None:
    parts = Parts(shards=4)
    assert parts.reshard(2, parts.newest).code == CLOSED
    parts.configure(max_jobs=0)
    # The others have not heard of it, and could take a job yet.
    assert parts.reshard(2, parts.newest).code == "settings_changed"
    parts.all_hear()
    assert parts.register(shards=4).code == "too_many_jobs"
    assert parts.reshard(2, parts.newest).status == 200
    parts.all_hear()
    assert parts.configure(max_jobs=10).status == 200
    parts.all_hear()
    assert parts.register(shards=2).status == 201
    assert parts.newest.shards == 2


def test_a_job_in_any_partition_keeps_them() -> None:
    for there in range(PARTITIONS):
        parts = Parts(shards=4)
        names = (f"job-{number}" for number in itertools.count())
        name = next(each for each in names if partition_of(TENANT, each, 4, PARTITIONS) == there)
        parts.register(4, name)
        parts.configure(max_jobs=0)
        parts.all_hear()
        assert parts.reshard(2, parts.newest).code == "shards_fixed"


def test_settings_that_changed_after_the_others_were_asked_ask_again() -> None:
    parts = Parts(shards=4)
    parts.configure(max_jobs=0)
    parts.all_hear()
    seen = parts.newest
    parts.configure(weight=2)
    assert parts.configure(shards=2, version=seen.version).code == "settings_changed"
    assert parts.configure(shards=2).code == "settings_changed"


def test_a_question_changes_nothing() -> None:
    parts = Parts(shards=4, max_jobs=0)
    others = tenant_partitions(TENANT, 4, PARTITIONS)[1:]
    assert parts.configure(others[0], shards=2, version=1).status == 200
    assert parts.topic == [parts.newest]
    assert parts.configure(others[0], weight=2).code == "misrouted"


@pytest.mark.parametrize("seed", range(200))
def test_no_job_is_lost_whatever_overtakes_what(seed: int) -> None:
    chance = random.Random(seed)
    parts = Parts(shards=chance.choice([1, 2, 4]), max_jobs=chance.choice([0, 100]))
    beliefs = [parts.newest]

    def something() -> None:
        for _ in range(chance.randrange(4)):
            match chance.randrange(4):
                case 0:
                    parts.register(chance.choice([1, 2, 4]))
                case 1:
                    parts.configure(max_jobs=chance.choice([0, 0, 100]))
                case 2:
                    beliefs.append(parts.newest)
                case _:
                    chance.choice(parts.processes).hear()
        assert not parts.lost()

    for _ in range(30):
        something()
        parts.reshard(chance.choice([1, 2, 4]), chance.choice(beliefs[-2:]), something)
    assert not parts.lost()
