"""An installation that keeps snapshots where tests can look at them."""

import pytest

from tests.unit.runtime.installation import Installation
from tests.unit.runtime.snapshotted import Kept


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def world(kept: Kept) -> Installation:
    world = Installation()
    world.objects = kept
    return world
