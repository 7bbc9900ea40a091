"""Settings of tenants and pools: one partition decides them, the event tells everybody (semantics §6)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from msgspec.structs import replace

from schemas import codec
from schemas.commands import ConfigurePool, ConfigureTenant
from schemas.entities import Pool, RetryPolicy, Tenant
from schemas.events import TenantConfigured
from schemas.replies import CommandDone
from streams.core.engine import Engine
from streams.store.memory import MemoryStore
from tests.unit.core.world import OnePartition, World

_numbers = itertools.count()


def envelope() -> dict[str, Any]:
    return {"command_id": f"c{next(_numbers)}", "actor": "operator", "reply_partition": 0, "session": "s"}


def configure(world: World, tenant: str = "acme", **settings: Any) -> CommandDone:
    (done,) = world.run(ConfigureTenant(**(envelope() | {"tenant": tenant} | settings)))
    assert isinstance(done, CommandDone)
    return done


def configure_pool(world: World, pool: str, tenant: str = "acme", **settings: Any) -> CommandDone:
    (done,) = world.run(ConfigurePool(**(envelope() | {"tenant": tenant, "pool": pool} | settings)))
    assert isinstance(done, CommandDone)
    return done


def told(world: World) -> list[Tenant]:
    """What the tenants topic gets: the events of that type."""
    events = [codec.decode(value or b"") for _, value in world.log]
    return [event.configured for event in events if isinstance(event, TenantConfigured)]


def test_a_change_leaves_the_rest_as_it_is() -> None:
    world = World()
    configure(world, weight=5)
    done = configure(world, max_running=7)
    assert done.status == 200
    assert done.configured is not None
    assert replace(done.configured, answered=()) == Tenant(tenant="acme", version=2, weight=5, max_running=7)
    assert told(world)[-1] == done.configured


def test_what_changes_nothing_is_no_event() -> None:
    world = World()
    configure(world, weight=5)
    assert configure(world, weight=5).configured == told(world)[-1]
    assert len(told(world)) == 1


def test_pools_are_settings_of_their_tenant() -> None:
    world = World()
    configure_pool(world, "mail", paused=True)
    configure_pool(world, "mail", max_running=3)
    done = configure_pool(world, "web", paused=True)
    assert done.configured is not None
    assert done.configured.pools == (
        Pool(name="mail", paused=True, max_running=3),
        Pool(name="web", paused=True),
    )


def test_pools_for_all_belong_to_a_tenant_that_is_none() -> None:
    world = World()
    assert configure_pool(world, "gpu", tenant="shared", max_running=8).status == 200
    refused = configure(world, tenant="shared", weight=2)
    assert (refused.status, refused.errors[0].field) == (400, "tenant")


def test_shards_are_fixed_while_there_are_jobs() -> None:
    world = World()
    world.register("j", every_sec=60)
    assert (configure(world, shards=8).status, configure(world, shards=8).code) == (409, "shards_fixed")
    assert configure(world, shards=1, weight=2).status == 200


def test_shards_are_fixed_while_anything_of_a_job_is_known() -> None:
    world = World()
    world.register("j", delay_sec=0, retry=RetryPolicy(max_attempts=1))
    world.run()
    (grant,) = world.claim()
    assert configure(world, shards=4).code == "shards_fixed"
    world.fail(grant)
    world.at(3 * 86_400)
    assert not world.knows_job("j")
    assert configure(world, shards=4).code == "shards_fixed"  # a dead letter
    world.discard(grant.execution.execution_id)
    assert configure(world, shards=4).status == 200


def test_wrong_settings_name_their_fields() -> None:
    world = World()
    done = configure(world, weight=0, shards=0, max_running=0, max_jobs=-1, lateness_alert_sec=0)
    fields = {problem.field for problem in done.errors}
    assert fields == {"weight", "shards", "maxRunning", "maxJobs", "latenessAlertSec"}
    assert configure_pool(world, "shared/x", paused=True).errors[0].field == "pool"
    assert not told(world)


def test_settings_come_back_by_replay() -> None:
    world = World()
    configure(world, weight=5)
    replayed = Engine(0, MemoryStore(), codec, OnePartition())
    for key, value in world.log:
        replayed.apply(key, value)
    replayed.commit()
    assert replayed.state.tenant("acme") == told(world)[-1]


@pytest.mark.parametrize("key", ["request_key", "command_id"])
def test_what_was_decided_is_not_done_again_over_what_came_later(key: str) -> None:
    world = World()
    first = configure(world, weight=5, **{key: "k"})
    paused = configure_pool(world, "mail", paused=True, **{key: "k"})
    configure(world, weight=7)
    configure_pool(world, "mail", paused=False)
    before = len(told(world))
    for again, was in (
        (configure(world, weight=5, **{key: "k"}), first),
        (configure_pool(world, "mail", paused=True, **{key: "k"}), paused),
    ):
        assert (again.status, again.replayed, was.replayed) == (was.status, True, False)
        assert again.configured == told(world)[-1]
    assert len(told(world)) == before
    assert (told(world)[-1].weight, told(world)[-1].pools[0].paused) == (7, False)


def test_what_changed_nothing_is_not_done_later_either() -> None:
    world = World()
    configure(world, weight=5)
    same = configure(world, weight=5, request_key="k")
    assert same.configured is not None
    assert same.configured.version == 1
    configure(world, weight=7)
    assert configure(world, weight=5, request_key="k").replayed
    assert told(world)[-1].weight == 7


def test_a_key_belongs_to_one_request() -> None:
    world = World()
    configure(world, weight=5, request_key="k")
    assert configure(world, weight=6, request_key="k").code == "idempotency_key_reused"
    # Of another pool it is another key, as of another job.
    for pool in ("mail", "web"):
        assert not configure_pool(world, pool, paused=True, request_key="k").replayed
    assert configure_pool(world, "mail", paused=False, request_key="k").code == "idempotency_key_reused"


def test_the_newest_commands_are_remembered_by_replay_too() -> None:
    world = World()
    for number in range(20):
        configure(world, weight=number + 1, request_key=f"k{number}")
    assert len(told(world)[-1].answered) == 16
    world.engine = world.rebuilt()
    world.store = MemoryStore()
    assert configure(world, weight=5, request_key="k4").replayed
    assert not configure(world, weight=1, request_key="k0").replayed
