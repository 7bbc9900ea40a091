"""Keys and ids: distinct things have distinct keys, and an execution id gives its job id back."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import ids
from schemas.entities import (
    Alert,
    Breaker,
    Cursor,
    Entity,
    Execution,
    Job,
    KeptContent,
    Lease,
    PartitionMeta,
    Record,
    Tenant,
)
from schemas.ids import JOB_ID, TENANT
from tests.golden import sample

TENANTS = st.from_regex(TENANT, fullmatch=True)
JOB_IDS = st.one_of(
    st.from_regex(JOB_ID, fullmatch=True), st.sampled_from([".", "...", "a.b.c.d", "m", "-", "~._"])
)
INSTANTS = st.integers(-(2**45), 2**45)
KEYS = st.text(min_size=1, max_size=20)
EXECUTION_IDS = st.one_of(
    st.builds(ids.scheduled_execution_id, JOB_IDS, INSTANTS, INSTANTS),
    st.builds(ids.manual_execution_id, JOB_IDS, INSTANTS, INSTANTS, KEYS),
)

BUILDERS = {
    Job: ids.job_key,
    Cursor: ids.cursor_key,
    Execution: ids.execution_key,
    Lease: ids.lease_key,
    KeptContent: ids.content_key,
    Breaker: ids.breaker_key,
    Alert: ids.alert_key,
}
OWNERS = st.one_of(
    st.tuples(st.sampled_from([Job, Cursor]), TENANTS, JOB_IDS),
    st.tuples(st.sampled_from([Breaker, Alert]), TENANTS, KEYS),
    st.tuples(st.sampled_from([Execution, Lease, KeptContent]), TENANTS, EXECUTION_IDS),
)


@given(OWNERS, OWNERS)
def test_distinct_entities_have_distinct_keys(
    one: tuple[type[Record], str, str], other: tuple[type[Record], str, str]
) -> None:
    keys = [BUILDERS[cls](tenant, name) for cls, tenant, name in (one, other)]
    assert (keys[0] == keys[1]) == (one == other)
    assert ids.META_KEY not in keys


@given(TENANTS, JOB_IDS)
def test_a_key_can_be_taken_apart(tenant: str, job_id: str) -> None:
    """Why keys are distinct: kind and tenant hold neither of the separators."""
    kind, _, rest = ids.job_key(tenant, job_id).partition(":")
    assert (kind, *rest.split("/", 1)) == ("job", tenant, job_id)


def test_the_key_of_an_entity_is_made_from_its_own_ids() -> None:
    job, cursor, execution = sample(Job), sample(Cursor), sample(Execution)
    assert ids.key_of(job) == ids.job_key(job.tenant, job.job_id)
    assert ids.key_of(cursor) == ids.cursor_key(cursor.tenant, cursor.job_id)
    assert ids.key_of(execution) == ids.execution_key(execution.tenant, execution.execution_id)
    lease, kept = sample(Lease), sample(KeptContent)
    assert ids.key_of(lease) == ids.lease_key(lease.tenant, lease.execution_id)
    assert ids.key_of(kept) == ids.content_key(kept.tenant, kept.execution_id)
    assert ids.key_of(PartitionMeta(partition=1, partition_count=8, tz_version="")) == ids.META_KEY
    breaker, alert, tenant = sample(Breaker), sample(Alert), sample(Tenant)
    assert ids.key_of(breaker) == ids.breaker_key(breaker.tenant, breaker.target)
    assert ids.key_of(alert) == ids.alert_key(alert.tenant, alert.alert_id)
    assert ids.key_of(tenant) == ids.tenant_key(tenant.tenant)
    assert set(BUILDERS) | {PartitionMeta, Tenant} == set(Entity.__args__)


@given(JOB_IDS, INSTANTS, INSTANTS, KEYS)
def test_an_execution_id_begins_with_its_job_id(job_id: str, incarnation: int, due: int, key: str) -> None:
    for execution_id in (
        ids.scheduled_execution_id(job_id, incarnation, due),
        ids.manual_execution_id(job_id, incarnation, incarnation, key),
    ):
        assert ids.job_id_of(execution_id) == job_id


@given(JOB_IDS, JOB_IDS, INSTANTS, INSTANTS, INSTANTS, KEYS)
def test_execution_ids_are_never_shared(
    job: str, other: str, incarnation: int, due: int, later: int, key: str
) -> None:
    made = ids.scheduled_execution_id(job, incarnation, due)
    assert (made == ids.scheduled_execution_id(job, incarnation, later)) == (due == later)
    assert (made == ids.scheduled_execution_id(other, incarnation, due)) == (job == other)
    assert made != ids.manual_execution_id(job, incarnation, incarnation, key)


@pytest.mark.parametrize(
    "text", ["", "j", "j.1.2", ".1.2.s", "j..2.s", "j.1.2.", "ä.1.2.s", "x" * 65 + ".1.2.s"]
)
def test_other_texts_give_no_job_id(text: str) -> None:
    assert ids.job_id_of(text) is None


@given(
    st.one_of(
        EXECUTION_IDS, st.text("aZ0.-~_é", max_size=80), st.from_regex(r"[aZ.]{0,66}(\.[a1Z-]{0,33}){3}")
    )
)
def test_job_ids_are_read_as_one_pattern_would(text: str) -> None:
    whole = re.fullmatch(f"({ids.JOB_ID.pattern})" + r"(\.[a-z0-9-]{1,32}){3}", text)
    assert ids.job_id_of(text) == (whole and whole[1])


@given(TENANTS, KEYS)
def test_a_derived_job_id_is_a_job_id(tenant: str, key: str) -> None:
    derived = ids.derived_job_id(tenant, key)
    assert JOB_ID.fullmatch(derived)
    assert derived.startswith(ids.DERIVED_PREFIX)
    assert derived != ids.derived_job_id(tenant + "0", key)


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (35, "z"), (36, "10"), (1_295, "zz"), (1_296, "100"), (-36, "-10")]
)
def test_base36(number: int, text: str) -> None:
    assert ids.base36(number) == text


def test_an_execution_knows_its_job() -> None:
    made = msgspec.structs.replace(sample(Execution), execution_id="a.b.1.2.s")
    assert made.job_id == ids.job_id_of(made.execution_id) == "a.b"
