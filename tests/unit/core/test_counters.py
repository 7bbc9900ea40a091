"""Counters that a transaction keeps as numbers, against a plain dict."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core import keys
from streams.core.counters import Counters
from streams.core.invariants import InvariantError
from streams.store.memory import MemoryStore
from streams.store.overlay import Overlay

KEYS = [b"na", b"nb", b"ra"]


def stored(kv: Overlay, prefix: bytes = b"") -> dict[bytes, int]:
    found = {key: kv.get(key) for key in KEYS if key.startswith(prefix)}
    return {key: int.from_bytes(value, "big") for key, value in found.items() if value is not None}


def test_what_a_transaction_changed_stands_in_the_store_at_its_end() -> None:
    kv = Overlay(MemoryStore())
    counters = Counters(kv)
    counters.add(b"na", 2)
    counters.add(b"ra", 1)
    counters.add(b"ra", -1)
    counters.raise_to(b"nb", 7)
    counters.raise_to(b"nb", 6)
    assert stored(kv) == {}
    counters.write()
    assert stored(kv) == {b"na": 2, b"nb": 7}
    assert [counters.get(key) for key in KEYS] == [2, 7, 0]


def test_none_is_negative() -> None:
    with pytest.raises(InvariantError, match="negative"):
        Counters(Overlay(MemoryStore())).add(b"na", -1)


def test_neither_of_two_numbers_in_one_is_negative() -> None:
    counters = Counters(Overlay(MemoryStore()))
    counters.add(b"na", keys.WAITING)
    counters.add(b"na", keys.ACTIVE)
    counters.add(b"na", -keys.ACTIVE)
    with pytest.raises(InvariantError, match="negative"):
        counters.add(b"na", -keys.ACTIVE)


def test_the_next_transaction_knows_what_the_last_one_knew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless that is too much to remember."""
    kv = Overlay(base := MemoryStore())
    counters = Counters(kv)
    asked: list[bytes] = []
    monkeypatch.setattr(base, "get", asked.append)
    for _ in range(2):
        counters.add(b"na", 1)
        counters.write()
        base.write(kv.take())
    assert asked == [b"na"]
    monkeypatch.setattr("streams.core.counters.KNOWN_MAX", 0)
    counters.write()
    assert counters.get(b"nb") == 0
    assert asked == [b"na", b"nb"]


steps = st.one_of(
    st.tuples(st.just("add"), st.sampled_from(KEYS)),
    st.tuples(st.just("take"), st.sampled_from(KEYS)),
    st.tuples(st.sampled_from(["mark", "back", "show", "end", "abort"]), st.just(b"")),
)


@given(st.lists(steps, max_size=60))
def test_scans_and_savepoints_see_what_a_dict_would_say(does: list[tuple[str, bytes]]) -> None:
    """At each step the numbers are those of a model, at each scan those of its family are in the overlay, and
    at each end all of them are in the store."""
    base = MemoryStore()
    kv = Overlay(base)
    counters = Counters(kv)
    model: dict[bytes, int] = {}
    committed: dict[bytes, int] = {}
    marks: list[tuple[int, int, dict[bytes, int]]] = []
    for what, key in does:
        if what == "add":
            counters.add(key, 1)
            model[key] = model.get(key, 0) + 1
        elif what == "take" and model.get(key):
            counters.add(key, -1)
            model[key] -= 1
        elif what == "mark":
            marks.append((kv.savepoint(), counters.savepoint(), dict(model)))
        elif what == "back" and marks:
            at_kv, at_counters, model = marks.pop()
            kv.rollback(at_kv)
            counters.rollback(at_counters)
        elif what == "show":
            counters.show(b"n")
            assert stored(kv, b"n") == {k: n for k, n in model.items() if n and k.startswith(b"n")}
        elif what == "end":
            counters.write()
            base.write(kv.take())
            assert stored(kv) == {k: n for k, n in model.items() if n}
            committed, marks = dict(model), []
        elif what == "abort":
            kv.clear()
            counters.clear()
            model, marks = dict(committed), []
        assert [counters.get(k) for k in KEYS] == [model.get(k, 0) for k in KEYS]
