"""Each sentence of semantics §6 (fairness and protection) has a test that fails if it is not kept: which one.

A sentence that is changed, or a test that is renamed, must be changed here as well.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHARING, CAPS, BREAKER = "core/test_sharing", "core/test_caps", "core/test_breaker"
SHARES = "api/test_shares"
LATENESS, ALERTS, LIMITS = "core/test_lateness", "core/test_alerts", "core/test_limits"

SENTENCES: list[tuple[str, str, str]] = [
    # How the sentence begins; file under tests/unit; test.
    ("A pool belongs to its tenant", "api/test_pools", "test_shared_pools_are_the_operators"),
    ("Within a pool: `priority`", SHARING, "test_priorities_come_before_tenants"),
    ("in a shared pool the next", SHARING, "test_one_slot_goes_round_by_weight"),
    ("within a tenant by due time.", SHARING, "test_within_a_tenant_by_due_time"),
    ("A turn whose priority", SHARING, "test_a_turn_whose_priority_has_nothing_goes_to_the_highest_that_has"),
    ("Where a pool is in its", "checker/test_turns", "test_turns_go_on_over_owners_of_the_partition"),
    ("Shares are held", SHARING, "test_endless_backlogs_hold_slots_by_weight_however_long_they_run"),
    ("A slot is *held*", SHARES, "test_also_of_a_few_slots_when_runs_of_one_tenant_do_not_end"),
    ("With endless backlogs", SHARES, "test_also_through_several_api_processes"),
    ("With more than 500", SHARING, "test_more_tenants_than_one_pass_may_see_all_have_their_turn"),
    ("Blocked executions", "core/test_exclusion", "test_only_one_is_in_the_queue"),
    (
        "Firing interleaves",
        "core/test_timebuckets",
        "test_a_flood_in_one_lane_delays_another_by_a_round_at_most",
    ),
    ("Caps, defaults", CAPS, "test_what_nobody_configured_has_the_defaults"),
    ("per job, per pool", CAPS, "test_a_pools_cap_leaves_others_alone"),
    ("A cap delays", CAPS, "test_a_tenants_cap_holds_over_its_pools_and_what_ends_in_one_frees_the_other"),
    ("a cap lowered below", CAPS, "test_a_cap_that_is_lowered_below_what_runs_stops_grants_alone"),
    ("A cancelled or timed-out", CAPS, "test_a_run_that_is_over_counts_until_its_lease_ends"),
    ("Exact for a tenant", CAPS, "test_what_runs_counts_after_a_crash"),
    ("of several shards", CAPS, "test_a_cap_is_split_over_shards_and_none_gets_nothing"),
    ("A shared pool's", SHARES, "test_slots_are_held_by_weight"),
    ("over all of them", SHARES, "test_the_pool_s_cap_is_exceeded_by_less_than_one_for_each_api_process"),
    ("Half of it", SHARING, "test_a_tenant_has_half_of_a_shared_pool_unless_the_pool_says_otherwise"),
    ("without either", SHARING, "test_in_a_pool_without_bounds_a_tenant_has_its_own_cap_alone"),
    ("A paused pool or tenant", CAPS, "test_a_paused_pool_grants_nothing_and_goes_on_where_it_was"),
    ("runs go on", CAPS, "test_the_time_to_start_goes_on_while_a_pool_is_paused"),
    (
        "Changes of settings",
        "runtime/test_live_settings",
        "test_what_other_settings_let_run_is_granted_without_any_other_event",
    ),
    ("A refused registration", "api/test_limits", "test_registrations_a_second"),
    ("Registrations fill", LIMITS, "test_a_second_s_worth_at_once_then_as_they_come"),
    ("what makes a job", LIMITS, "test_an_update_costs_nothing_and_a_restart_fills_the_bucket"),
    ("A restart of a", LIMITS, "test_an_update_costs_nothing_and_a_restart_fills_the_bucket"),
    ("A tenant of several", LIMITS, "test_shares_of_a_tenant_with_shards"),
    ("A lowered number", LIMITS, "test_lowering_the_cap_takes_no_job_away"),
    ("`maxJobs` 0", LIMITS, "test_zero_jobs_close_registration"),
    ("**Circuit breaker**", BREAKER, "test_when_it_opens"),
    ("after 30 s", BREAKER, "test_a_probe_that_fails_opens_it_for_twice_as_long"),
    ("a success, or a probe", BREAKER, "test_a_probe_that_beats_for_a_minute_closes_it"),
    ("For pools it holds", BREAKER, "test_open_it_holds_back_retries_and_nothing_else"),
    ("`retryable: false`", BREAKER, "test_what_says_nothing_of_the_target_does_not_count"),
    ("a timeout does.", BREAKER, "test_timeouts_count"),
    ("Three are tried", BREAKER, "test_those_due_first_are_tried"),
    ("while fewer are", BREAKER, "test_first_attempts_probe_too_when_nothing_is_held_back"),
    ("A probe that is", BREAKER, "test_a_probe_that_told_nothing_is_replaced"),
    ("What was held back", BREAKER, "test_what_was_held_back_is_let_go_a_hundred_at_a_time"),
    ("of retries of one", BREAKER, "test_many_retries_of_one_group_are_looked_at_in_parts"),
    ("The minute of", BREAKER, "test_the_minute_of_outcomes_begins_anew_after_a_restart"),
    ("A tenant of several", "projections/test_alerts", "test_a_breaker_as_it_stands"),
    ("One that is to be", BREAKER, "test_one_that_nothing_comes_to_try_is_closed_after_a_day"),
    ("a breaker that has", BREAKER, "test_a_closed_one_is_forgotten_after_a_day"),
    ("Each change is", BREAKER, "test_after_the_pause_three_are_tried_and_a_success_lets_all_go"),
    ("**Alerts**", ALERTS, "test_every_alert_is_an_event_and_an_effect"),
    (
        "`partition_stopped` is",
        "runtime/test_deciding",
        "test_a_broken_invariant_stops_its_partition_and_no_other",
    ),
    ("**When which.**", ALERTS, "test_a_dead_letter_warns_a_week_before_it_is_forgotten"),
    ("`tz_shift`: one", "core/test_rezoning", "test_only_the_jobs_that_new_data_move_are_recomputed"),
    ("`lateness`: at most", LATENESS, "test_what_waits_for_a_worker_is_told_of_once_a_minute"),
    ("what was counted", LATENESS, "test_what_starts_late_is_counted_and_told_of_a_minute_later"),
    (
        "a job with its own",
        LATENESS,
        "test_a_job_with_its_own_threshold_is_told_of_at_once_whatever_it_waits_for",
    ),
    ("Paused pools and", LATENESS, "test_what_is_paused_is_late_on_purpose"),
    ("Backfills are late", LATENESS, "test_a_redelivery_and_a_backfill_of_the_past_are_not_late"),
    ("a redelivery is", LATENESS, "test_a_redelivery_and_a_backfill_of_the_past_are_not_late"),
    ("Alerts without", "api/test_alerts", "test_alerts_by_tenant_filter_and_page"),
    ("An alert is", ALERTS, "test_an_alert_is_forgotten_after_a_week"),
    ("the read model", "projections/test_alerts", "test_alerts_stay_when_the_engine_forgets_and_go_in_time"),
]


@cache
def section() -> list[str]:
    """The sentences, and parts of sentences, of §6."""
    text = (ROOT / "docs" / "semantics.md").read_text()
    _, _, behind = text.partition("\n## 6. Fairness and protection\n")
    told = re.split(r"(?<=[.;])\s+", behind.partition("\n## ")[0].strip())
    return [sentence.removeprefix("- ") for sentence in told]


def test_every_sentence_is_in_the_table() -> None:
    for sentence, (beginning, _, _) in zip(section(), SENTENCES, strict=False):
        assert sentence.startswith(beginning)
    assert len(section()) == len(SENTENCES)


@pytest.mark.parametrize(("file", "test"), sorted({(file, test) for _, file, test in SENTENCES}))
def test_every_test_of_the_table_is_there(file: str, test: str) -> None:
    text = (ROOT / "tests" / "unit" / f"{file}.py").read_text()
    assert re.search(rf"^(async )?def {test}\(", text, re.MULTILINE)
