"""The ladder of schedulers: what each step from static batching to vLLM is worth, and what it costs."""

from typing import Any

import numpy as np
import pytest

from llmsim.engine.orca import OrcaScheduler
from llmsim.engine.settings import EngineSpec
from llmsim.engine.static import StaticScheduler
from llmsim.engine.vllm import VllmScheduler
from llmsim.engine.vllm_v0 import VllmV0Scheduler
from llmsim.results.breakdown import breakdown
from llmsim.results.results import Results
from llmsim.simulation import simulate
from llmsim.workload import RequestTable
from tests.factories import a_linear_cost, a_pool, a_scenario, a_table


def run(scheduler: Any, table: RequestTable, **pool: Any) -> Results:
    """These requests on one engine with this scheduler, without prefix caching."""
    engine = EngineSpec(scheduler=scheduler, enable_prefix_caching=False)
    return simulate(a_scenario(table, pools=[a_pool(engine=engine, **pool)]))


def test_each_step_of_the_ladder_ends_a_burst_sooner() -> None:
    """Answers of very different lengths, of which max_tokens says little, in a pool that holds eight reservations."""
    outputs = np.random.default_rng(0).integers(5, 200, 96)
    table = a_table(arrival_s=[0.0] * 96, prompt_tokens=100, output_tokens=outputs.tolist(), max_tokens=1000)
    pool = {"num_gpu_blocks_override": 601, "max_model_len": 4096, "cost": a_linear_cost(per_token_s=0.0)}
    ladder = (
        StaticScheduler(max_num_seqs=64),
        OrcaScheduler(max_num_seqs=64),
        VllmScheduler(max_num_seqs=64, max_num_batched_tokens=4096, async_scheduling=False),
    )
    static, orca, vllm = (run(scheduler, table, **pool) for scheduler in ladder)
    ends = [results.facts.window_end_s for results in (static, orca, vllm)]
    assert ends[0] > 1.3 * ends[1] > 1.3 * 1.3 * ends[2]
    assert orca.record.iterations["running"].max() == 600 // -(-1100 // 16)
    assert vllm.record.iterations["running"].max() > 30


def test_a_static_batch_is_padded_and_keeps_newcomers_out() -> None:
    table = a_table(arrival_s=[0.0, 0.0, 0.001], prompt_tokens=[10, 100, 10], output_tokens=[3, 20, 5])
    results = run(StaticScheduler(max_num_seqs=8), table)
    columns, iterations = results.record.requests, results.record.iterations
    assert columns["first_scheduled_s"][2] == columns["finish_s"][1]
    assert iterations["prefill_tokens"][0] == 2 * 100
    assert np.all(iterations["decode_tokens"][1:20] == 2)
    assert iterations["context_tokens"][19] == 2 * (100 + 19)
    assert columns["finish_s"][0] == iterations["end_s"][2]


def test_prefill_first_stalls_the_decodes_that_chunks_spare() -> None:
    """One stream, then a long prompt: V0 computes it at once and the stream waits; chunks keep the stream going."""
    table = a_table(arrival_s=[0.0, 0.5], prompt_tokens=[10, 4000], output_tokens=[100, 5])
    pool = {"max_model_len": 8192, "num_gpu_blocks_override": 2000}
    old = run(VllmV0Scheduler(max_num_seqs=8), table, **pool)
    new = run(VllmScheduler(max_num_seqs=8, max_num_batched_tokens=256, async_scheduling=False), table, **pool)
    ttft = [results.record.requests["first_token_s"][1] - 0.5 for results in (old, new)]
    assert ttft[0] < ttft[1]
    stall = [results.record.requests["max_itl_s"][0] for results in (old, new)]
    assert stall[0] == pytest.approx(0.01 + 0.4 + 0.01 + 1e-4, rel=0.03)  # the prompt's iteration and its own
    assert stall[1] < 0.045


def test_prefill_first_preempts_the_latest_when_blocks_run_out() -> None:
    table = a_table(arrival_s=[0.0] * 4, prompt_tokens=64, output_tokens=200)
    results = run(VllmV0Scheduler(max_num_seqs=8), table, num_gpu_blocks_override=33, max_model_len=400)
    columns = results.record.requests
    assert columns["outcome"].tolist() == ["finished"] * 4
    assert columns["preemptions"][0] == 0
    assert columns["preemptions"][3] > 0


@pytest.mark.parametrize(
    ("factor", "admitted_ms"),
    [
        (0.0, [0, 20, 20, 20, 20]),  # whoever is there when an iteration ends
        (1e-9, [0, 20, 20, 20, 30]),  # a hundredth of a nanosecond: not at once
        (2.49999995, [0, 40, 40, 50, 50]),  # 25 ms less half a nanosecond
        (2.5, [0, 40, 50, 50, 50]),  # 25 ms: the third request has waited just so long at 40 ms
        (2.79999995, [0, 40, 50, 50, 50]),  # the second has waited for half a nanosecond more at 40 ms
        (2.8, [0, 50, 50, 50, 50]),  # just so long
        (1000.0, [0, 100, 100, 100, 100]),  # nobody runs any more
    ],
)
def test_prompts_are_held_back_for_a_multiple_of_the_last_iteration_of_prompts(
    factor: float, admitted_ms: list[int]
) -> None:
    """Every iteration takes 10 ms, so that plans are made at multiples of it; the first request ends at 100 ms.

    All that is 3 ms later, since the API server takes so long: what counts is when a request came to the engine.
    """
    table = a_table(arrival_s=[0.0, 0.012, 0.015, 0.017, 0.02], output_tokens=[10, 2, 2, 2, 2])
    cost = a_linear_cost(per_token_s=0.0, request_s=0.003)
    results = run(VllmV0Scheduler(max_num_seqs=8, scheduler_delay_factor=factor), table, cost=cost)
    assert np.rint(results.record.requests["first_scheduled_s"] * 1000 - 3).tolist() == admitted_ms
    held_ms = np.rint(breakdown(results.record)["queue_delay_s"] * 1000)
    next_plan_ms = [0, 20, 20, 20, 20]
    assert held_ms.tolist() == [late - plan for late, plan in zip(admitted_ms, next_plan_ms, strict=True)]


def test_how_long_prompts_are_held_back_is_measured_anew_with_each_iteration_of_prompts() -> None:
    """The prompts take 20 and 50 ms, a decode 10.1 ms, two 10.2 ms."""
    table = a_table(arrival_s=[0.0, 0.025, 0.071], prompt_tokens=[100, 400, 100], output_tokens=50)
    results = run(VllmV0Scheduler(max_num_seqs=8, scheduler_delay_factor=2.0), table)
    admitted_s = [0.0, 0.02 + 5 * 0.0101, 0.02 + 5 * 0.0101 + 0.05 + 5 * 0.0102]  # after 65 ms and after 171 ms
    assert results.record.requests["first_scheduled_s"] == pytest.approx(admitted_s, abs=1e-8)


def test_holding_prompts_back_lets_them_come_together_and_late() -> None:
    arrivals_s = np.cumsum(np.random.default_rng(0).exponential(0.03, 200))
    table = a_table(arrival_s=arrivals_s.tolist(), output_tokens=40)
    runs = [run(VllmV0Scheduler(max_num_seqs=64, scheduler_delay_factor=factor), table) for factor in (0.0, 1.0, 4.0)]
    ttft_s = [(each.record.requests["first_token_s"] - arrivals_s).mean() for each in runs]
    prompts = [int((each.record.iterations["prefill_tokens"] > 0).sum()) for each in runs]
    assert ttft_s[0] < ttft_s[1] < ttft_s[2]
    assert prompts[0] > prompts[1] > prompts[2]


def test_prompts_cannot_be_held_back_for_less_than_no_time() -> None:
    with pytest.raises(ValueError, match="scheduler_delay_factor"):
        VllmV0Scheduler(scheduler_delay_factor=-0.5)
