"""``simulate`` as a user meets it: physics, limits, requests that cannot be served, and ends of a run."""

import math
from typing import Any

import numpy as np
import pytest

from llmsim.cost import AnalyticCost
from llmsim.engine.replica import MOST_PREEMPTIONS
from llmsim.errors import ScenarioError
from llmsim.scenario import Scenario
from llmsim.simulation import simulate
from llmsim.workload import RequestTable
from tests.factories import a_linear_cost, a_model, a_pool, a_scenario, a_table


def a_real_scenario(table: RequestTable, **given: Any) -> Scenario:
    """Llama-3.1-8B on one H100, with the physics."""
    return a_scenario(table, **{"cost": AnalyticCost(), **given})


def outcomes(scenario: Scenario) -> list[tuple[str, str]]:
    """How each request ended, and why."""
    columns = simulate(scenario).record.requests
    return list(zip(columns["outcome"].tolist(), columns["reason"].tolist(), strict=True))


def simulate_at_most(scenario: Scenario, reports: int = 2) -> Any:
    """Simulate, and fail where the run does not come to an end."""
    seen = []

    def watch(now_s: float, done: int, requests: int) -> None:
        seen.append(now_s)
        assert len(seen) < reports, f"{reports * 20_000} events and no end: {done} of {requests} requests at {now_s} s"

    return simulate(scenario, progress=watch)


def busy_shares(scenario: Scenario) -> dict[str, float]:
    """What the busy time of a run was spent on."""
    bound = simulate(scenario).summary()["bound"]
    busy = 1 - bound.pop("idle")
    return {name: share / busy for name, share in bound.items()}


def test_a_long_prompt_alone_is_bound_by_compute() -> None:
    shares = busy_shares(a_real_scenario(a_table(prompt_tokens=4096, output_tokens=1)))
    assert shares["compute"] >= 0.8


def test_one_answer_alone_is_bound_by_memory() -> None:
    shares = busy_shares(a_real_scenario(a_table(prompt_tokens=16, output_tokens=500)))
    assert shares["hbm"] >= 0.65
    assert shares["compute"] < 0.1


@pytest.mark.parametrize(("tensor_parallel_size", "asynchronous"), [(1, True), (1, False), (4, True)])
def test_no_iteration_beats_the_chip(tensor_parallel_size: int, asynchronous: bool) -> None:
    rng = np.random.default_rng(0)
    requests = 150
    table = a_table(
        arrival_s=np.cumsum(rng.exponential(0.02, requests)),
        prompt_tokens=rng.geometric(1 / 1500, requests),
        output_tokens=rng.geometric(1 / 100, requests),
    )
    scenario = a_real_scenario(table, tensor_parallel_size=tensor_parallel_size, async_scheduling=asynchronous)
    chip, iterations = scenario.pools[0].accelerator, simulate(scenario).record.iterations
    lasting_s = iterations["end_s"] - iterations["start_s"]
    assert np.all(iterations["flop"] <= chip.peak_flop_per_s["bfloat16"] * lasting_s)
    assert np.all(iterations["hbm_bytes"] <= chip.hbm_bandwidth_bytes_per_s * lasting_s)
    assert np.all(iterations["link_bytes"] <= chip.scale_up.bandwidth_bytes_per_s * lasting_s)
    assert np.any(iterations["link_bytes"] > 0) == (tensor_parallel_size > 1)
    summary = simulate(scenario).summary()
    assert 0 < summary["mfu"] < 1
    assert 0 < summary["mbu"] < 1


def test_a_prompt_as_long_as_max_model_len_is_rejected_and_counted() -> None:
    table = a_table(prompt_tokens=[63, 64, 65], output_tokens=5)
    scenario = a_scenario(table, max_model_len=64, num_gpu_blocks_override=100)
    assert [outcome for outcome, _ in outcomes(scenario)] == ["finished", "rejected", "rejected"]
    summary = simulate(scenario).summary()
    assert summary["requests"] == {"total": 3, "finished": 1, "rejected": 2, "aborted": 0, "in_flight": 0}
    columns = simulate(scenario).record.requests
    assert columns["reason"][1] == "prompt >= max_model_len"
    assert columns["output_tokens"].tolist() == [1, 0, 0]
    assert np.isnan(columns["queued_s"][1])
    assert columns["replica"][1] == -1


def test_max_model_len_ends_an_answer() -> None:
    table = a_table(prompt_tokens=60, output_tokens=50, max_tokens=[-1, 20, 3])
    columns = simulate(a_scenario(table, max_model_len=64, num_gpu_blocks_override=100)).record.requests
    assert columns["output_tokens"].tolist() == [4, 4, 3]
    assert set(columns["reason"]) == {"length"}


def test_an_answer_ends_by_itself_or_by_its_limit() -> None:
    table = a_table(output_tokens=[10, 10, 10], max_tokens=[-1, 11, 9])
    assert outcomes(a_scenario(table)) == [("finished", "stop"), ("finished", "stop"), ("finished", "length")]


@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize("leap", [True, False])
def test_an_answer_of_one_token_that_ends_by_itself_is_one_token(asynchronous: bool, leap: bool) -> None:
    table = a_table(output_tokens=1, max_tokens=[-1, 6])
    results = simulate(a_scenario(table, async_scheduling=asynchronous, leap=leap))
    assert results.record.requests["output_tokens"].tolist() == [1, 1]
    assert results.record.iterations["sampled"].sum() == 2
    assert results.summary()["tpot_s"]["mean"] is None


def test_an_end_seen_late_costs_one_wasted_token() -> None:
    """Asynchronous scheduling plans one iteration more for an answer that stops, not for one that is cut."""
    stops, is_cut = (
        simulate(a_scenario(a_table(output_tokens=20, max_tokens=limit))).record.iterations for limit in (30, 20)
    )
    assert len(stops["end_s"]) == len(is_cut["end_s"]) + 1
    assert stops["sampled"].sum() == is_cut["sampled"].sum() == 20
    assert stops["decode_tokens"].sum() == is_cut["decode_tokens"].sum() + 1


def test_a_request_that_outgrows_the_pool_is_stuck_and_said_to_be() -> None:
    given = {"max_model_len": 4000, "allow_long_max_model_len": True, "num_gpu_blocks_override": 11}
    table = a_table(prompt_tokens=[100, 100, 500], output_tokens=[20, 200, 5])
    results = simulate_at_most(a_scenario(table, **given))
    assert results.record.requests["outcome"].tolist() == ["finished", "aborted", "aborted"]
    assert set(results.record.requests["reason"][1:]) == {"stuck"}
    assert results.record.requests["output_tokens"][1] == 61


def test_whoever_waits_for_a_stuck_request_is_accounted_for() -> None:
    table = a_table(prompt_tokens=[500, 10], after=[-1, 0])
    stuck = a_scenario(table, max_model_len=4000, allow_long_max_model_len=True, num_gpu_blocks_override=11)
    assert [outcome for outcome, _ in outcomes(stuck)] == ["aborted", "aborted"]


def test_a_prompt_larger_than_the_pool_is_not_computed_for_ever() -> None:
    """Without the whole prompt reserved its chunks are admitted, run out of blocks and start again."""
    table = a_table(prompt_tokens=500, output_tokens=5)
    results = simulate_at_most(
        a_scenario(
            table,
            max_model_len=4000,
            allow_long_max_model_len=True,
            num_gpu_blocks_override=11,
            max_num_seqs=4,
            max_num_batched_tokens=64,
            scheduler_reserve_full_isl=False,
            enable_prefix_caching=False,
        )
    )
    assert results.record.requests["outcome"].tolist() == ["aborted"]


def test_equals_do_not_preempt_one_another_for_ever() -> None:
    """Prompts of one priority and one arrival, which fit one at a time, admitted by chunks."""
    table = a_table(arrival_s=0.0, prompt_tokens=[100, 100, 100], output_tokens=3)
    results = simulate_at_most(
        a_scenario(
            table,
            num_gpu_blocks_override=11,
            policy="priority",
            max_num_seqs=3,
            max_num_batched_tokens=21,
            long_prefill_token_threshold=7,
            scheduler_reserve_full_isl=False,
            enable_prefix_caching=False,
        )
    )
    assert set(results.record.requests["outcome"]) <= {"finished", "aborted"}
    assert results.record.requests["preemptions"].max() <= MOST_PREEMPTIONS


def test_the_horizon_includes_what_happens_at_it() -> None:
    """Iterations of 10 ms: the third token is out at 30 ms, and the request that arrives then is in the system."""
    table = a_table(arrival_s=[0.0, 0.03, 0.031], output_tokens=[10, 5, 5])
    cost = a_linear_cost(per_token_s=0.0)
    for leap in (True, False):
        results = simulate(a_scenario(table, cost=cost, horizon_s=0.03, leap=leap))
        columns = results.record.requests
        assert columns["output_tokens"].tolist() == [3, 0, 0]
        assert set(columns["outcome"]) == {"in_flight"}
        assert columns["reason"].tolist() == ["horizon", "horizon", "not sent"]
        assert columns["queued_s"][1] == 0.03
        assert results.facts.window_end_s == 0.03


def test_figures_are_of_the_window_after_the_warm_up() -> None:
    table = a_table(arrival_s=[0.0, 1.0, 2.0], output_tokens=[2, 2, 2])
    summary = simulate(a_scenario(table, warm_up_s=0.5)).summary()
    assert summary["requests"]["total"] == 3
    assert summary["offered_request_rate_per_s"] == pytest.approx(1.0)


def test_a_warm_up_longer_than_the_run_leaves_nothing_but_no_less() -> None:
    summary = simulate(a_scenario(a_table(), warm_up_s=100.0)).summary()
    assert summary["duration_s"] == 0
    assert summary["ttft_s"]["mean"] is None
    assert summary["running"]["mean"] == 0


def test_a_workload_without_requests_is_the_users_fault() -> None:
    nothing: list[int] = []
    with pytest.raises(ScenarioError, match="request"):
        simulate(a_scenario(a_table(arrival_s=nothing, prompt_tokens=nothing, output_tokens=nothing)))


def test_pools_of_different_kinds_serve_side_by_side() -> None:
    pools = (
        a_pool(name="small", num_gpu_blocks_override=64, max_num_seqs=2),
        a_pool(name="large", cost=AnalyticCost(), block_size=32, enable_prefix_caching=False, replicas=2),
    )
    table = a_table(arrival_s=[0.0] * 30)
    results = simulate(a_scenario(table, pools=pools))
    assert set(results.record.requests["pool"]) == {"small", "large"}
    assert results.facts.replicas == 3
    assert results.summary()["requests"]["finished"] == 30


def test_progress_tells_time_and_requests() -> None:
    told: list[tuple[float, int, int]] = []
    requests = 2500
    table = a_table(arrival_s=np.arange(requests) * 0.5, output_tokens=9)
    simulate(a_scenario(table, leap=False), progress=lambda *report: told.append(report))
    times, done, total = zip(*told, strict=True)
    assert list(times) == sorted(times)
    assert 0 < times[0] <= requests * 0.5
    assert list(done) == sorted(done)
    assert set(total) == {requests}


def test_what_was_lowered_or_borrowed_is_in_the_notes() -> None:
    results = simulate(a_scenario(num_gpu_blocks_override=100))
    assert any("max_model_len lowered" in note for note in results.facts.notes)
    assert results.facts.pools[0]["max_model_len"] == 99 * 16
    assert results.facts.pools[0]["model"] == a_model().name


def test_a_preempted_request_keeps_its_tokens_and_stalls() -> None:
    """Two answers outgrow the pool together: the later one waits, computes its tokens again, and goes on."""
    table = a_table(arrival_s=[0.0, 0.0], prompt_tokens=60, output_tokens=100, max_tokens=100)
    columns = simulate(a_scenario(table, num_gpu_blocks_override=16)).record.requests
    assert columns["preemptions"][0] == 0
    assert columns["preemptions"][1] >= 1
    assert columns["output_tokens"].tolist() == [100, 100]
    assert columns["recomputed_tokens"][1] > 0
    assert columns["max_itl_s"][1] > 10 * columns["max_itl_s"][0]
    assert not math.isnan(columns["finish_s"][1])
