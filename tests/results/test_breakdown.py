"""Where the time went, down to the resource: by hand, and to the nanosecond on every kind of run."""

import numpy as np
import pytest

from llmsim import simulate
from llmsim.errors import ScenarioError
from llmsim.results.attribution import attribute
from llmsim.results.breakdown import COMPONENTS, QUEUE, Metric, breakdown, explain_percentile
from llmsim.results.record import Columns, RunRecord
from tests.equivalence.drawn import draw_scenario
from tests.results.factories import a_preemption, a_record, a_request, an_iteration, some_facts

METRICS: tuple[Metric, ...] = ("ttft", "e2e", "tpot")


def in_ns(columns: Columns) -> dict[str, np.ndarray]:
    return {name: np.rint(columns[name] * 1e9).astype(np.int64) for name in (*COMPONENTS, "total_s")}


def components_of(record: RunRecord, metric: Metric = "e2e") -> dict[str, float]:
    """The components of the only finished request that are not zero."""
    (row,) = zip(*(breakdown(record, metric)[name] for name in COMPONENTS), strict=True)
    return {name: round(float(value), 9) for name, value in zip(COMPONENTS, row, strict=True) if value}


def check(record: RunRecord) -> None:
    """Components of every metric of every request sum to it to the nanosecond, and none is negative."""
    coarse = attribute(record)
    for metric in METRICS:
        found = in_ns(breakdown(record, metric))
        assert np.array_equal(sum(found[name] for name in COMPONENTS), found["total_s"])
        assert all((found[name] >= 0).all() for name in COMPONENTS)
    waiting = sum(found_queue for found_queue in (in_ns(breakdown(record))[name] for name in QUEUE))
    assert np.array_equal(waiting, np.rint(coarse["waiting_s"] * 1e9).astype(np.int64))


def test_the_queue_is_told_by_what_stopped_admission() -> None:
    """Queued in the middle of iteration 0; then one iteration each for slots, KV, the budget and a delay."""
    causes = ["empty", "slots", "kv", "budget", "delay", "empty"]
    steps = [an_iteration(i, start_s=i / 10, end_s=(i + 1) / 10, stopped_by=cause) for i, cause in enumerate(causes)]
    request = a_request(queued_s=0.05, arrival_s=0.05, first_scheduled_s=0.5, first_token_s=0.6, finish_s=0.6)
    each = {f"queue_{cause}_s": 0.1 for cause in ("slots", "kv", "budget", "delay")}
    expected = {"queue_boundary_s": 0.05, **each, "prefill_s": 0.1}
    assert components_of(a_record(requests=[request], iterations=steps)) == expected


def test_decode_is_told_by_resource_and_prefills_of_others_by_what_they_added() -> None:
    spent = {"compute_s": 0.01, "hbm_s": 0.06, "link_s": 0.02, "overhead_s": 0.01}
    mixed = {"compute_s": 0.24, "hbm_s": 0.06, "link_s": 0.0, "overhead_s": 0.0}
    steps = [
        an_iteration(0, prefill_tokens=1000, decode_tokens=0),
        an_iteration(1, start_s=0.1, end_s=0.2, **spent),
        an_iteration(2, start_s=0.2, end_s=0.5, prefill_tokens=900, **mixed),
    ]
    record = a_record(requests=[a_request(finish_s=0.5)], iterations=steps)
    twice = {f"decode_{name}": round(2 * value, 9) for name, value in spent.items()}
    assert components_of(record, "tpot") == {**twice, "others_prefill_s": 0.2}
    assert components_of(record, "ttft") == {"prefill_s": 0.1}
    assert components_of(record) == {**components_of(record, "tpot"), "prefill_s": 0.1}


def test_a_preemption_is_a_wait_and_a_recomputation() -> None:
    steps = [an_iteration(i, start_s=i / 10, end_s=(i + 1) / 10) for i in range(6)]
    stall = a_preemption(preempted_s=0.2, resumed_s=0.4, caught_up_s=0.5)
    record = a_record(requests=[a_request(finish_s=0.6)], iterations=steps, preemptions=[stall])
    assert components_of(record) == {
        "prefill_s": 0.1, "preempted_s": 0.2, "recompute_s": 0.1, "decode_hbm_s": 0.2,
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_drawn_runs_add_up_to_the_nanosecond(seed: int) -> None:
    check(simulate(draw_scenario(seed, 30)).record)


def test_a_percentile_is_explained_by_the_requests_near_it() -> None:
    """100 requests of 0.1 s to 10 s: the 99th is one of 9.9 s."""
    steps = [an_iteration(i, start_s=i / 10, end_s=(i + 1) / 10) for i in range(101)]
    requests = [a_request(i, first_token_s=0.1, finish_s=0.1 + (i + 1) / 10) for i in range(100)]
    record = a_record(requests, steps, facts=some_facts(window_end_s=20.0))
    found = explain_percentile(record, "e2e", 99)
    assert (found.requests, round(found.total_s, 9)) == (1, 10.0)
    assert sum(found.components_s.values()) == pytest.approx(found.total_s, rel=1e-12)
    assert explain_percentile(record, "tpot", 0).total_s == pytest.approx(0.05)


def test_what_was_not_recorded_cannot_be_explained() -> None:
    with pytest.raises(ScenarioError, match='run\\.record = "requests"'):
        breakdown(a_record(facts=some_facts(record="requests")))
    with pytest.raises(ScenarioError, match="nothing to explain"):
        explain_percentile(a_record(facts=some_facts(window_start_s=0.4)))
