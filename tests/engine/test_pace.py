"""The times of iterations on planes: close to the cost model, never below it, and the same one by one or together."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmsim.cost import AnalyticCost, Batch, LinearCost, Step
from llmsim.cost.base import Account, CostModel
from llmsim.engine.pace import TICKS_PER_NS, TOLERANCE, Pace
from tests.cost.factories import a_deployment, a_prefill

TICKS_PER_S = 1e9 * TICKS_PER_NS
MODELS = {
    "dense": a_deployment(),
    "without graphs": a_deployment(enforce_eager=True),
    "experts": a_deployment("qwen3-30b-a3b", tensor_parallel_size=4),
    "latent": a_deployment("deepseek-v3", tensor_parallel_size=8),
    "stages": a_deployment("llama-3.1-70b", tensor_parallel_size=2, pipeline_parallel_size=3),
    "windows": a_deployment("gpt-oss-20b"),
}


def seconds(cost: CostModel, sequences: int, context: int, window: int) -> Step:
    """What the cost model says of an iteration of decodes."""
    return cost.step(Batch(0, 0, 0, 0, sequences, context, sequences, 0, 0, window))


@pytest.mark.parametrize("ideal", [False, True])
@pytest.mark.parametrize("name", MODELS)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_planes_are_close_to_the_cost_model_and_not_below_it(name: str, ideal: bool, data: st.DataObject) -> None:
    """Rounding is to a tick, a 65,536th of a nanosecond, for each token attended to."""
    deployment = MODELS[name]
    cost, window = AnalyticCost(ideal=ideal).start(deployment), deployment.model.sliding_window
    pace = Pace(cost, windowed=window is not None)
    sequences = data.draw(st.integers(1, 1024))
    for _ in range(20):
        context = data.draw(st.integers(sequences, sequences * 100_000))
        kept = context if window is None else data.draw(st.integers(sequences, min(context, sequences * window)))
        cell = pace.decodes(sequences, context, kept)
        assert cell.context_from <= context < cell.context_to
        assert cell.window_from <= kept < cell.window_to
        for plane, exact_s in zip((cell.occupancy, cell.latency), seconds(cost, sequences, context, kept), strict=True):
            ticks, exact = plane.at(context, kept), exact_s * TICKS_PER_S
            assert exact - context - kept - 1 <= ticks <= exact * (1 + 4 * TOLERANCE) + context + kept + 1


def test_whole_nanoseconds_stay_whole() -> None:
    """60 ns a token attended to, 25,000 a token: the constants of recorded decisions."""
    pace = Pace(LinearCost(base_s=0.006, per_token_s=25e-6, per_context_token_s=60e-9))
    for sequences, context in ((1, 1), (3, 1000), (700, 123_457)):
        ticks = pace.decodes(sequences, context, context).occupancy.at(context, context)
        assert ticks == (6_000_000 + 25_000 * sequences + 60 * context) * TICKS_PER_NS
    assert pace.step(a_prefill(100)) == ((6_000_000 + 2_500_000 + 6000) * TICKS_PER_NS,) * 2


def test_no_iteration_takes_less_than_a_nanosecond() -> None:
    pace = Pace(LinearCost())
    assert pace.step(a_prefill(100)) == (TICKS_PER_NS, TICKS_PER_NS)
    assert pace.decodes(5, 100, 100).occupancy.at(100, 100) == TICKS_PER_NS


class Bent:
    """A made-up cost: level up to ``turn`` tokens attended to, then rising."""

    request_s = 0.0

    def __init__(self, turn: int) -> None:
        self.turn = turn

    def step(self, batch: Batch) -> Step:
        """Ten milliseconds, and a microsecond for each token beyond the turn."""
        taken = 0.01 + 1e-6 * max(batch.decode_context_tokens - self.turn, 0)
        return Step(taken, taken)

    def account(self, batches: Batch) -> Account:
        """Nobody asks."""
        raise NotImplementedError


@pytest.mark.parametrize("turn", [1500, 2048, 70_000])
def test_cells_are_cut_where_the_cost_model_bends(turn: int) -> None:
    pace, cost = Pace(Bent(turn)), Bent(turn)
    for context in range(max(turn - 600, 16), turn + 600, 7):
        ticks = pace.decodes(16, context, context).occupancy.at(context, context)
        exact = seconds(cost, 16, context, context).occupancy_s * TICKS_PER_S
        assert exact - context <= ticks <= exact * (1 + 4 * TOLERANCE)


def a_pace(**changes: Any) -> Pace:
    """Of the dense model."""
    return Pace(AnalyticCost().start(replace(MODELS["dense"], **changes)))


def test_the_same_question_has_the_same_answer_whatever_was_asked_before() -> None:
    """Whether iterations are taken one by one or together, their times are the same."""
    alone = {context: a_pace().decodes(64, context, context).occupancy for context in range(1000, 60_000, 977)}
    shared = a_pace()
    assert {context: shared.decodes(64, context, context).occupancy for context in reversed(alone)} == alone
