"""The simulation finds bugs: some deliberate breaks of the product, each caught within a few seeds.

`make mutants` hunts all of them; docs/testing.md has the figures.
"""

from __future__ import annotations

import pytest

from tests.simulation.mutants.hunt import ALL, hunt

QUICK = (
    "an attempt too many",
    "batch loses a key",
    "catch-up dropped",
    "dead letter not sent",
    "epoch not raised",
    "positions not carried",
)
SEEDS_MAX = 5


@pytest.mark.timeout(600)  # a loaded machine
def test_breaks_of_the_product_are_found() -> None:
    caught = {catch.name: catch for catch in hunt(QUICK, SEEDS_MAX)}
    assert caught.keys() == set(QUICK)
    assert not [name for name, catch in caught.items() if not catch.seeds]


def test_every_mutation_has_a_name_of_its_own_and_says_what_it_breaks() -> None:
    assert len(ALL) >= 35
    assert all(mutation.breaks for mutation in ALL.values())
