"""The intervals in a summary: of the right figure, around the known truth, and none where nothing is known."""

from typing import Any

import numpy as np
import pytest

from llmsim import simulate
from llmsim.results.confidence import latency_interval
from llmsim.results.metrics import PERCENTILES
from tests.study.factories import SERVICE_S, an_md1, md1_wait_s


def test_a_long_run_knows_its_latencies() -> None:
    results = simulate(an_md1(rate_per_s=3.0, requests=3000))
    summary = results.summary()
    intervals = summary["intervals"]
    assert intervals["level"] == 0.95
    for metric in ("ttft_s", "e2e_s", "queue_s"):
        for name in ("mean", *(f"p{each}" for each in PERCENTILES)):
            low, high = intervals[metric][name]["low"], intervals[metric][name]["high"]
            assert low <= summary[metric][name] <= high, (metric, name)
    mean = intervals["ttft_s"]["mean"]
    assert mean["low"] < md1_wait_s(0.3) + SERVICE_S < mean["high"]
    assert latency_interval(results.record, "ttft", "mean")[1:] == tuple(mean.values())
    assert intervals["tpot_s"]["p99"] == {"low": None, "high": None}, "each answer is one token"
    assert summary["stability"]["verdict"] == "stable"


@pytest.mark.parametrize("changes", [{"requests": 30}, {"requests": 300, "record": "summary"}])
def test_too_little_to_tell_is_null(changes: Any) -> None:
    intervals = simulate(an_md1(rate_per_s=3.0, **changes)).summary()["intervals"]
    assert intervals["ttft_s"]["p50"] == {"low": None, "high": None}


def test_requests_count_in_the_order_in_which_they_came() -> None:
    """A row that arrives earlier than the row before it belongs before it: batches are times, not rows."""
    scenario = an_md1(rate_per_s=3.0, requests=400)
    record = simulate(scenario).record
    shuffled = np.random.default_rng(0).permutation(400)
    for name in record.requests:
        record.requests[name] = record.requests[name][shuffled]
    assert latency_interval(record, "ttft", "p90") == latency_interval(simulate(scenario).record, "ttft", "p90")
