"""Settings of tenants and pools: one partition decides them, the event tells everybody (semantics §6)."""

from __future__ import annotations

import itertools
from typing import Any

from schemas import codec
from schemas.commands import ConfigurePool, ConfigureTenant
from schemas.entities import Pool, Tenant
from schemas.events import TenantConfigured
from schemas.replies import CommandDone
from streams.core.engine import Engine
from streams.store.memory import MemoryStore
from tests.unit.core.world import OnePartition, World

_numbers = itertools.count()


def envelope() -> dict[str, Any]:
    return {"command_id": f"c{next(_numbers)}", "actor": "operator", "reply_partition": 0, "session": "s"}


def configure(world: World, tenant: str = "acme", **settings: Any) -> CommandDone:
    (done,) = world.run(ConfigureTenant(tenant=tenant, **envelope(), **settings))
    assert isinstance(done, CommandDone)
    return done


def configure_pool(world: World, pool: str, tenant: str = "acme", **settings: Any) -> CommandDone:
    (done,) = world.run(ConfigurePool(tenant=tenant, pool=pool, **envelope(), **settings))
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
    assert done.configured == Tenant(tenant="acme", version=2, weight=5, max_running=7)
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
    assert configure(world, shards=4).status == 200
    world.register("j", every_sec=60)
    assert (configure(world, shards=8).status, configure(world, shards=8).code) == (409, "shards_fixed")
    assert configure(world, shards=4, weight=2).status == 200


def test_wrong_settings_name_their_fields() -> None:
    world = World()
    done = configure(world, weight=0, shards=0, max_running=0, max_jobs=0, lateness_alert_sec=0)
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
