"""The summary: each figure by hand, and what must hold for any run."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from llmsim.results.metrics import latencies, summarise, weighted_distribution, weighted_percentiles
from llmsim.results.record import REQUEST_COLUMNS
from tests.results.factories import (
    NAN,
    a_record,
    a_rejected_request,
    a_request,
    columns,
    some_facts,
    some_totals,
    the_requests,
)

LATENCIES = ("ttft_s", "tpot_s", "itl_s", "e2e_s", "queue_s")
STATISTICS = {"mean", "p50", "p90", "p95", "p99", "max"}


def summary_of(*requests: dict[str, Any], slo: dict[str, float] | None = None, **facts: Any) -> dict[str, Any]:
    return summarise(a_record(requests=list(requests), facts=some_facts(slo=slo or {}, **facts)))


def test_keys_of_the_contract() -> None:
    summary = summarise(a_record())
    figures = {"request_throughput_per_s", "output_throughput_tokens_per_s", "total_throughput_tokens_per_s"}
    figures |= {"schema_version", "scenario", "seed", "gpus", "duration_s", "preemptions", "mfu", "mbu"}
    figures |= {"goodput_per_s", "cost_usd_per_hour", "cost_usd_per_million_output_tokens", "events"}
    groups = {"requests", "kv_usage", "running", "waiting", "slo", "bound", "leaped_iterations", *LATENCIES}
    assert figures | groups <= summary.keys()
    assert all(summary[name].keys() == STATISTICS for name in LATENCIES)
    assert all(summary[name].keys() == {"mean", "max"} for name in ("kv_usage", "running", "waiting"))
    assert summary["bound"].keys() == {"compute", "hbm", "link", "overhead", "idle"}


def test_story_by_hand() -> None:
    summary = summarise(a_record())
    assert summary["requests"] == {"total": 3, "finished": 2, "rejected": 1, "aborted": 0, "in_flight": 0}
    assert summary["ttft_s"]["mean"] == pytest.approx((0.1 + 0.15) / 2)
    assert summary["tpot_s"]["max"] == pytest.approx(0.12 / 2)
    assert summary["e2e_s"]["p50"] == pytest.approx((0.22 + 0.17) / 2)
    assert summary["queue_s"]["max"] == pytest.approx(0.05)
    assert summary["itl_s"]["mean"] == pytest.approx((0.1 + 0.02 + 0.02) / 3)
    assert summary["request_throughput_per_s"] == pytest.approx(2 / 0.5)
    assert summary["offered_request_rate_per_s"] == pytest.approx(2 / 0.1), "two gaps in 0.1 s"
    assert summary["output_throughput_tokens_per_s"] == pytest.approx(5 / 0.5)
    assert summary["total_throughput_tokens_per_s"] == pytest.approx(1505 / 0.5)
    assert summary["mfu"] == pytest.approx(5e13 / (1e15 * 0.5))
    assert summary["mbu"] == pytest.approx(2e11 / (4e12 * 0.5))
    assert summary["bound"]["idle"] == pytest.approx(0.28 / 0.5)
    assert summary["cost_usd_per_million_output_tokens"] == pytest.approx(4 / 3600 * 0.5 / 5 * 1e6)


@given(
    arrays(np.float64, st.integers(1, 30), elements=st.floats(0, 1e3), unique=True),
    st.integers(0, 2**32 - 1),
    st.lists(st.floats(0, 100), min_size=1, max_size=8),
)
def test_weighted_percentiles_are_those_of_the_expanded_sample(
    values: np.ndarray, seed: int, percentiles: list[float]
) -> None:
    values = np.sort(values)
    counts = np.random.default_rng(seed).integers(0, 6, len(values))
    counts[seed % len(counts)] += 1
    expected = np.percentile(np.repeat(values, counts), percentiles)
    assert np.array_equal(weighted_percentiles(values, counts, np.array(percentiles)), expected)


def test_weighted_distribution_ignores_values_that_never_occur() -> None:
    found = weighted_distribution(np.array([1.0, 2.0, 9.0]), np.array([3, 1, 0]))
    assert found["max"] == 2.0
    assert found["mean"] == 1.25


def test_latency_identity_of_a_request() -> None:
    """TTFT + (n - 1) TPOT = E2E: the check on imported measurements holds for our own."""
    row = a_request(arrival_s=0.25, first_token_s=1.0, finish_s=3.5, output_tokens=6)
    values = latencies(columns(REQUEST_COLUMNS, [row]))
    assert values["ttft"][0] + 5 * values["tpot"][0] == pytest.approx(values["e2e"][0])
    assert values["tpot"][0] == 0.5


@pytest.mark.parametrize(
    "other",
    [
        a_rejected_request(9, arrival_s=0.1),
        a_request(9, arrival_s=0.1, outcome="in_flight", finish_s=NAN, reason="horizon"),
        a_request(9, arrival_s=0.1, outcome="aborted", finish_s=NAN, reason="stuck"),
    ],
    ids=lambda row: row["outcome"],
)
def test_only_finished_requests_enter_latencies(other: dict[str, Any]) -> None:
    alone, beside = summary_of(*the_requests()), summary_of(*the_requests(), other)
    assert all(beside[name] == alone[name] for name in LATENCIES)
    assert beside["request_throughput_per_s"] == alone["request_throughput_per_s"]
    assert beside["requests"][other["outcome"]] == alone["requests"][other["outcome"]] + 1


def test_tokens_of_an_unfinished_request_are_throughput() -> None:
    unfinished = a_request(outcome="in_flight", finish_s=NAN, output_tokens=7, prompt_tokens=40)
    unprefilled = a_request(1, outcome="in_flight", finish_s=NAN, first_token_s=NAN, output_tokens=0)
    summary = summary_of(unfinished, unprefilled, window_end_s=2.0)
    assert summary["output_throughput_tokens_per_s"] == 3.5
    assert summary["total_throughput_tokens_per_s"] == 23.5


def test_warm_up_is_counted_but_not_measured() -> None:
    early = a_request(0, arrival_s=0.9, first_token_s=5.0, finish_s=9.0, preemptions=2)
    on_time = a_request(1, arrival_s=1.0, first_scheduled_s=1.0, first_token_s=1.5, finish_s=2.0)
    summary = summary_of(early, on_time, window_start_s=1.0, window_end_s=11.0)
    assert summary["requests"]["finished"] == 2
    assert summary["preemptions"] == 2
    assert summary["duration_s"] == 10.0
    assert summary["ttft_s"]["max"] == 0.5
    assert summary["request_throughput_per_s"] == 0.1
    assert summary["offered_request_rate_per_s"] is None, "one arrival is no rate"


def test_request_that_would_arrive_after_the_horizon_is_not_offered_load() -> None:
    late = a_rejected_request(1, arrival_s=0.6, outcome="in_flight", reason="horizon")
    never = a_rejected_request(2, arrival_s=NAN, outcome="in_flight", reason="horizon")
    summary = summary_of(a_request(0), a_request(3, arrival_s=0.25), late, never)
    assert summary["offered_request_rate_per_s"] == 1 / 0.25
    assert summary["requests"]["total"] == 4


def test_run_without_requests_is_strict_json() -> None:
    nothing = some_totals(
        flop=0.0,
        bound_s={},
        itl_values_s=np.empty(0),
        itl_counts=np.empty(0, np.int64),
        kv_usage_mean=NAN,
    )
    facts = some_facts(window_end_s=0.0, slo={"ttft_p99_s": 1.0})
    summary = summarise(a_record(requests=[], iterations=[], totals=nothing, facts=facts))
    json.dumps(summary, allow_nan=False)
    assert all(set(summary[name].values()) == {None} for name in LATENCIES)
    assert summary["output_throughput_tokens_per_s"] == 0.0
    assert summary["kv_usage"]["mean"] is None
    assert summary["bound"] == {"compute": 0.0, "hbm": 0.0, "link": 0.0, "overhead": 0.0, "idle": 1.0}
    assert summary["cost_usd_per_million_output_tokens"] is None
    assert summary["slo"] == {
        "met": None,
        "targets": {"ttft_p99_s": {"limit_s": 1.0, "value_s": None, "met": None}},
    }


def test_summary_holds_plain_numbers() -> None:
    summary = summarise(a_record(facts=some_facts(slo={"ttft_p99_s": 1.0, "itl_p99_s": 0.05})))
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def test_bound_shares_sum_to_one() -> None:
    assert sum(summarise(a_record())["bound"].values()) == pytest.approx(1.0)


def test_no_slo_is_neither_met_nor_missed() -> None:
    summary = summarise(a_record())
    assert summary["slo"] == {"met": None, "targets": {}}
    assert summary["goodput_per_s"] is None


def test_slo_is_met_when_every_target_is() -> None:
    """TTFTs are 0.1 and 0.15, TPOTs 0.06 and 0.02."""
    kept = summary_of(*the_requests(), slo={"ttft_p50_s": 0.125, "tpot_mean_s": 0.05})
    assert kept["slo"]["met"] is True
    missed = summary_of(*the_requests(), slo={"ttft_p50_s": 0.125, "tpot_p99_s": 0.05})
    assert missed["slo"]["met"] is False
    assert missed["slo"]["targets"]["ttft_p50_s"]["met"] is True
    assert missed["slo"]["targets"]["tpot_p99_s"] == {
        "limit_s": 0.05,
        "value_s": missed["tpot_s"]["p99"],
        "met": False,
    }


def test_slo_is_missed_when_nothing_finished() -> None:
    stuck = a_request(outcome="in_flight", finish_s=NAN)
    assert summary_of(stuck, slo={"ttft_p99_s": 100.0})["slo"]["met"] is False


def test_one_token_answers_keep_any_tpot_limit() -> None:
    row = a_request(output_tokens=1, finish_s=0.1, max_itl_s=NAN)
    summary = summary_of(row, slo={"tpot_p99_s": 1e-9, "ttft_p99_s": 1.0})
    assert summary["tpot_s"]["p99"] is None
    assert summary["slo"]["met"] is True
    assert summary["goodput_per_s"] == 1 / 0.5


@pytest.mark.parametrize(
    ("slo", "good"),
    [
        ({"ttft_p99_s": 0.1}, 1),
        ({"ttft_p50_s": 0.2}, 2),
        ({"tpot_p99_s": 0.03}, 1),
        ({"tpot_p99_s": 0.03, "ttft_p99_s": 0.1}, 0),
        ({"e2e_p99_s": 0.2}, 1),
        ({"itl_p99_s": 0.09}, 1),
        ({"itl_mean_s": 0.07}, 2),
    ],
)
def test_goodput_counts_requests_that_keep_every_limit(slo: dict[str, float], good: int) -> None:
    """Request 0: TTFT 0.1, TPOT 0.06, longest gap 0.1, E2E 0.22. Request 1: 0.15, 0.02, 0.02, 0.17."""
    summary = summary_of(*the_requests(), slo=slo)
    assert summary["goodput_per_s"] == good / 0.5
    assert summary["slo_attainment"] == pytest.approx(good / 3)


def test_cached_share_is_of_admitted_prompts() -> None:
    refused = a_rejected_request(1, prompt_tokens=10**6)
    assert summary_of(a_request(0, cached_tokens=250), refused)["cached_prompt_share"] == 0.25


def test_price_that_is_not_known_gives_no_cost() -> None:
    summary = summarise(a_record(facts=some_facts(cost_usd_per_hour=None)))
    assert summary["cost_usd_per_hour"] is None
    assert summary["cost_usd_per_million_output_tokens"] is None
