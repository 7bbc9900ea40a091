"""Owns the way of a changed setting: decided by the tenant's home partition, told to every process.

It is answered once this process knows it too, so that a read that follows shows it.
"""

from __future__ import annotations

import logging

from api.auth import Caller
from api.changes import checked, decide_at
from api.services import Services
from schemas.commands import ConfigurePool, ConfigureTenant
from schemas.entities import Tenant

log = logging.getLogger(__name__)


async def configure(served: Services, caller: Caller, command: ConfigureTenant | ConfigurePool) -> Tenant:
    """The settings as they are now; Problem if the change was refused."""
    checked(command)
    home = served.client.partitions_of(command.tenant)[0]
    outcome = await decide_at(served, caller, home, command)
    assert outcome.configured is not None
    settings = outcome.configured
    if not await served.followed.reached(settings.tenant, settings.version):
        log.warning("settings of %s, version %d, are slow to come back", settings.tenant, settings.version)
    return settings
