"""A load test whose best throughput is an artefact: it sent prompts that an earlier run had left in the prefix cache.

Observed with a quantized Qwen2.5-7B on a card of 24 GB, 15,709 blocks of 16 tokens, prompts of 6144 tokens behind a
template of 29, outputs of 1024, twice as many prompts as are in flight: running at most 40 with 48 or 64 in flight,
preemptions from between 32 and 48 on, hit rates of 99.8 % with 16, 50.0 % with 32 and 0.3 % with 48 in flight.
Throughput was 362 tokens/s with 8 in flight, 812 with 16, 627 with 32 and 397 with 48.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
import pytest

from llmsim.cost import AnalyticCost
from llmsim.simulation import simulate
from llmsim.workload import RequestTable
from tests.factories import a_model, a_scenario, an_accelerator

BLOCKS, BLOCK_TOKENS = 15_709, 16
TEMPLATE, PROMPT, OUTPUT = 29, 6_144, 1_024
APART_S = 10_000.0


class Seen(NamedTuple):
    """What a run shows."""

    running: int
    """At most."""
    kv_usage: float
    """At most."""
    preemptions: int
    hit_rate: float
    output_tokens_per_s: float


def runs_in_turn(*in_flight: int) -> RequestTable:
    """Runs one after another: each sends the first prompts of one list, with so many workers."""
    run = np.repeat(np.arange(len(in_flight)), 2 * np.array(in_flight))
    number = np.concatenate([np.arange(2 * workers) for workers in in_flight])
    workers = np.array(in_flight)[run]
    row = np.arange(len(run))
    pieces = np.stack([[np.zeros_like(row), 0 * row, 0 * row + TEMPLATE], [1 + number, 0 * row, 0 * row + PROMPT]])
    stream, start, tokens = pieces.transpose(1, 2, 0).reshape(3, -1)
    return RequestTable.build(
        arrival_s=APART_S * run,
        prompt_tokens=TEMPLATE + PROMPT,
        output_tokens=OUTPUT,
        max_tokens=OUTPUT,
        after=np.where(number >= workers, row - workers, -1),
        session=run,
        segments=(2 * np.arange(len(run) + 1), stream, start, tokens),
    )


@cache
def seen(*in_flight: int) -> list[Seen]:
    """What each of several runs in turn shows."""
    results = simulate(
        a_scenario(
            runs_in_turn(*in_flight),
            model=a_model("qwen2.5-7b"),
            accelerator=an_accelerator("rtx-3090"),
            quantization="int4",
            num_gpu_blocks_override=BLOCKS,
            max_model_len=8_192,
            cost=AnalyticCost(),
        )
    )
    requests, iterations = results.requests, results.iterations
    shown = []
    for run in range(len(in_flight)):
        rows = requests[requests["session"] == run]
        steps = iterations[iterations["start_s"].between(run * APART_S, (run + 1) * APART_S)]
        duration_s = rows["finish_s"].max() - rows["arrival_s"].min()
        shown.append(
            Seen(
                running=int(steps["running"].max()),
                kv_usage=float(steps["kv_blocks"].max() / BLOCKS),
                preemptions=int(rows["preemptions"].sum()),
                hit_rate=float(rows["cached_tokens"].sum() / rows["prompt_tokens"].sum()),
                output_tokens_per_s=float(rows["output_tokens"].sum() / duration_s),
            )
        )
    return shown


@pytest.mark.parametrize(("in_flight", "kv_usage"), [(8, 0.228), (16, 0.456), (32, 0.913)])
def test_below_the_pool_nobody_is_preempted(in_flight: int, kv_usage: float) -> None:
    (run,) = seen(in_flight)
    assert run.running == in_flight
    assert run.preemptions == 0
    assert run.kv_usage == pytest.approx(kv_usage, abs=0.005)


@pytest.mark.parametrize(("in_flight", "preemptions"), [(48, 10), (64, 15)])
def test_beyond_it_as_many_run_as_prompts_fit_and_some_are_preempted(in_flight: int, preemptions: int) -> None:
    (run,) = seen(in_flight)
    assert run.running == BLOCKS // -(-(TEMPLATE + PROMPT) // BLOCK_TOKENS) == 40
    assert run.kv_usage > 0.99
    assert run.preemptions == pytest.approx(preemptions, rel=0.3)


def test_the_prefix_cache_knows_prompts_of_the_run_before_until_there_are_too_many() -> None:
    rates = [run.hit_rate for run in seen(16, 16, 32, 48)]
    # Only the template's whole block at first; then all; half of twice as many; then each is evicted before its turn.
    assert rates == pytest.approx([0.003, 0.998, 0.500, 0.003], abs=0.001)


def test_throughput_peaks_at_16_in_flight_only_because_its_prompts_were_cached() -> None:
    _, cached, half_cached, evicted = (run.output_tokens_per_s for run in seen(16, 16, 32, 48))
    assert cached > half_cached > evicted
    fresh = [seen(in_flight)[0].output_tokens_per_s for in_flight in (8, 16, 32, 48)]
    assert max(fresh) == fresh[2]
    assert fresh[1] < 0.5 * cached
