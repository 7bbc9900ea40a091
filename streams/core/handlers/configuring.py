"""Settings of tenants and pools: changed by one partition, the tenant's home, and told to all processes.

The event goes to the events of the home partition and, in the same transaction, to the tenants topic. What
it says counts for decisions from then on; nothing that was decided changes, and a replay never asks for it.

`shards` says where the tenant's jobs are looked for, so they change only while no partition knows one. The
home of a tenant with one shard sees that by itself. With several, registration is closed first (`max_jobs`
0). Then each of the others says that it has heard so and knows nothing of the tenant: from there on nothing
can come up in it, since only newer settings open registration again. The home goes last, and only if the
settings are still those.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from schemas.commands import Command, ConfigurePool, ConfigureTenant
from schemas.entities import Answered, Pool, Tenant
from schemas.events import TenantConfigured
from streams.core.handlers.answering import meaning_of
from streams.core.handlers.outcome import Done
from streams.core.limits import ANSWERS_KEPT_MAX, POOLS_CONFIGURED_MAX
from streams.core.refusals import (
    KEY_REUSED,
    REGISTRATION_OPEN,
    SETTINGS_CHANGED,
    SHARDS_FIXED,
    TOO_MANY_POOLS,
    Refusal,
)
from streams.core.transaction import Transaction

_NO_SETTINGS = frozenset(field.name for field in msgspec.structs.fields(Command)) | {"pool", "version"}


def configure_tenant(tx: Transaction, command: ConfigureTenant) -> Done | Refusal:
    """Elsewhere than in the tenant's home it is a question, and changes nothing."""
    known = tx.settings_of(command.tenant)
    at_home = tx.partition == tx.router.partitions_of(command.tenant)[0]
    answer = _repeated(known, command) if at_home else None
    if answer is not None:
        return answer
    changed = replace(known, **_given(command))
    refusal = _keeps_shards(tx, known, command.version) if changed.shards != known.shards else None
    if refusal is not None:
        return refusal
    return _configured(tx, known, changed, command) if at_home else Done(200, configured=known)


def configure_pool(tx: Transaction, command: ConfigurePool) -> Done | Refusal:
    """A pool without settings of its own has the defaults."""
    known = tx.settings_of(command.tenant)
    answer = _repeated(known, command)
    if answer is not None:
        return answer
    pools = {pool.name: pool for pool in known.pools}
    pools[command.pool] = replace(pools.get(command.pool) or Pool(name=command.pool), **_given(command))
    if len(pools) > POOLS_CONFIGURED_MAX:
        return TOO_MANY_POOLS
    return _configured(tx, known, replace(known, pools=tuple(pools.values())), command)


def _keeps_shards(tx: Transaction, known: Tenant, seen_version: int | None) -> Refusal | None:
    """Why other shards are not possible now, as far as this partition can tell."""
    if seen_version not in (None, known.version):
        return SETTINGS_CHANGED
    if tx.state.knows_any_of(known.tenant):
        return SHARDS_FIXED
    if known.shards > 1 and known.max_jobs:
        return REGISTRATION_OPEN
    # Without a version nobody can have asked the others.
    return SETTINGS_CHANGED if known.shards > 1 and seen_version is None else None


def _given(command: ConfigureTenant | ConfigurePool) -> dict[str, Any]:
    settings = msgspec.structs.asdict(command)
    return {name: v for name, v in settings.items() if name not in _NO_SETTINGS and v is not None}


def _repeated(known: Tenant, command: ConfigureTenant | ConfigurePool) -> Done | Refusal | None:
    """The answer to a command that was decided before: it is not done again over what came later."""
    key = _key_of(command)
    for answered in known.answered:
        if answered.request_key == key:
            if answered.body_hash != meaning_of(command):
                return KEY_REUSED
            return Done(answered.status, configured=known, replayed=True)
    return None


def _key_of(command: ConfigureTenant | ConfigurePool) -> str:
    """A key is one of the tenant or of one pool, as a job's is of that job. Without one the command's own id
    tells a record that stands in the log twice."""
    key = command.request_key or command.command_id
    return f"{command.pool}/{key}" if isinstance(command, ConfigurePool) else key


def _configured(
    tx: Transaction, known: Tenant, changed: Tenant, command: ConfigureTenant | ConfigurePool
) -> Done:
    """What changes nothing is no version; with a key it is remembered all the same."""
    if changed == known and not command.request_key:
        return Done(200, configured=known)
    version = known.version + (changed != known)
    newest = Answered(
        request_key=_key_of(command), body_hash=meaning_of(command), status=200, version=version
    )
    answered = (*known.answered, newest)[-ANSWERS_KEPT_MAX:]
    changed = replace(changed, version=version, answered=answered)
    tx.emit(TenantConfigured, configured=changed)
    return Done(200, configured=changed)
