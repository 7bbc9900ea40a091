"""A shared pool through two API processes: slots are held by weight, also beside runs that do not end.

To within three hundredths this is held in virtual time (`tests/unit/api/test_shares.py`); here are real
processes, on a machine that runs other things, too."""

import argparse
import secrets

import pytest

from bench import shares
from bench.report import VALID

NEAR = 0.1


def test_three_tenants_hold_slots_by_weight(kafka: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HORARIUM_KAFKA", kafka)
    monkeypatch.setenv("HORARIUM_NAMESPACE", f"e2e-{secrets.token_hex(4)}")
    options = argparse.Namespace(runs="600,0.05,0.5", workers=5, slots=8, seconds=8, kill=False, apis=2)
    figures = shares.measure(options)
    assert figures[VALID]
    eighths = figures["held"]
    for tenant, weight in shares.WEIGHTS.items():
        assert abs(eighths[tenant] - weight) <= 8 * NEAR, eighths
