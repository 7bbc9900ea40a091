"""Settings of tenants and pools: changed by one partition, the tenant's home, and told to all processes.

The event goes to the events of the home partition and, in the same transaction, to the tenants topic. What
it says counts for decisions from then on; nothing that was decided changes, and a replay never asks for it.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from schemas.commands import Command, ConfigurePool, ConfigureTenant
from schemas.entities import Pool, Tenant
from schemas.events import TenantConfigured
from streams.core.handlers.outcome import Done
from streams.core.limits import POOLS_CONFIGURED_MAX
from streams.core.refusals import SHARDS_FIXED, TOO_MANY_POOLS, Refusal
from streams.core.transaction import Transaction

_NO_SETTINGS = frozenset(field.name for field in msgspec.structs.fields(Command)) | {"pool"}


def configure_tenant(tx: Transaction, command: ConfigureTenant) -> Done | Refusal:
    """`shards` says where the tenant's jobs are looked for: fixed while one is known here."""
    known = _newest(tx, command.tenant)
    changed = replace(known, **_given(command))
    if changed.shards != known.shards and tx.state.has_jobs(command.tenant):
        return SHARDS_FIXED
    return _configured(tx, known, changed)


def configure_pool(tx: Transaction, command: ConfigurePool) -> Done | Refusal:
    """A pool without settings of its own has the defaults."""
    known = _newest(tx, command.tenant)
    pools = {pool.name: pool for pool in known.pools}
    pools[command.pool] = replace(pools.get(command.pool) or Pool(name=command.pool), **_given(command))
    if len(pools) > POOLS_CONFIGURED_MAX:
        return TOO_MANY_POOLS
    return _configured(tx, known, replace(known, pools=tuple(pools.values())))


def _newest(tx: Transaction, tenant: str) -> Tenant:
    """A change decided a moment ago stands in the state before the tenants topic brings it back; a
    development server writes to that topic alone."""
    stored, told = tx.state.tenant(tenant), tx.router.settings_of(tenant)
    return stored if stored is not None and stored.version >= told.version else told


def _given(command: ConfigureTenant | ConfigurePool) -> dict[str, Any]:
    settings = msgspec.structs.asdict(command)
    return {name: v for name, v in settings.items() if name not in _NO_SETTINGS and v is not None}


def _configured(tx: Transaction, known: Tenant, changed: Tenant) -> Done:
    if changed != known:
        changed = replace(changed, version=known.version + 1)
        tx.emit(TenantConfigured, configured=changed)
    return Done(200, configured=changed)
