"""What an engine's release and its sampling cost, and contexts of unequal length."""

import heapq
from typing import Any

import numpy as np
import pytest

from llmsim.cost import AnalyticCost
from llmsim.cost.operators import TAIL
from tests.cost.factories import a_decode, a_deployment, account_of


def _step_s(sequences: int, **given: Any) -> float:
    return AnalyticCost().start(a_deployment(**given)).step(a_decode(sequences, 500)).occupancy_s


@pytest.mark.parametrize(("rows", "measured_s"), [(128, 2.3e-3), (512, 6.2e-3)])
def test_sorting_takes_as_long_as_measured(rows: int, measured_s: float) -> None:
    """vllm-project/vllm, pull request 40376: 131,072 logits a row; the GPU is not stated."""
    seconds = [_step_s(rows, engine_version="0.11", sampling=sampling) for sampling in ("top_p", "greedy")]
    assert seconds[0] - seconds[1] == pytest.approx(measured_s * 128_256 / 131_072, rel=0.35)


def test_newer_releases_do_not_sort() -> None:
    assert _step_s(256, sampling="top_p") == _step_s(256)


def test_the_v0_engine_spends_time_on_each_sequence() -> None:
    """3.4 ms for 32 sequences, 0.2 ms for one (vllm-project/vllm#6913)."""
    v0, v1 = ({rows: _step_s(rows, engine_version=release) for rows in (1, 32)} for release in ("0.6", "0.11"))
    assert (v0[32] - v1[32]) - (v0[1] - v1[1]) == pytest.approx(3.2e-3, rel=0.05)


def _relative_tail(lengths: np.ndarray, places: int) -> float:
    """How many mean lengths the last place of a list schedule works longer than all would if work were divided."""
    ends = [0.0] * places
    for length in lengths:
        heapq.heapreplace(ends, ends[0] + float(length))
    return float(max(ends) - lengths.sum() / places) / float(lengths.mean())


def test_the_longest_contexts_are_read_on_alone() -> None:
    """The excess of unequal contexts (a log-standard deviation of 0.5) over equal ones, for 64 multiprocessors and many
    numbers of sequences of 8 KV heads."""
    random = np.random.default_rng(0)
    counts = range(16, 160, 8)
    unequal = [_relative_tail(np.repeat(random.lognormal(0, 0.5, count), 8), 64) for count in counts]
    equal = [_relative_tail(np.ones(8 * count), 64) for count in counts]
    assert np.mean(unequal) - np.mean(equal) == pytest.approx(TAIL, abs=0.25)


def test_both_forms_of_the_tail_agree() -> None:
    cost = AnalyticCost().start(a_deployment(accelerator="rtx-pro-6000"))
    for sequences in (1, 20, 128):
        batch = a_decode(sequences, 900)
        account = account_of(cost, batch)
        spent = account.compute_s + account.hbm_s + account.link_s + account.overhead_s
        assert spent == pytest.approx(cost.step(batch).occupancy_s, rel=1e-9)
