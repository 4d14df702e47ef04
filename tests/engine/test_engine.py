"""Scheduler, state and KV memory together, driven by a plain loop over drawn requests."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from llmsim.scenario import Scenario
from llmsim.simulation import simulate
from tests.engine.harness import Harness
from tests.equivalence.drawn import MOST_REQUESTS, draw_scenario
from tests.factories import changed, table_of

law = settings(max_examples=75, derandomize=True, deadline=None, database=None)
drawn = given(seed=st.integers(0, 100_000), requests=st.integers(1, MOST_REQUESTS))


def without_waits(scenario: Scenario) -> Scenario:
    """The scenario with requests that arrive whatever becomes of the others."""
    table = table_of(scenario)
    return changed(scenario, requests=replace(table, after=np.full(len(table), -1)))


def count_blocks(harness: Harness) -> None:
    """Free and held blocks are all blocks, and nobody holds any without running."""
    kv = harness.state.kv
    assert 0 <= kv.free <= kv.blocks
    assert kv.free + harness.held_blocks() == kv.blocks


@law
@drawn
def test_every_block_is_free_or_held_and_all_are_free_in_the_end(seed: int, requests: int) -> None:
    scenario = without_waits(draw_scenario(seed, requests))
    harness = Harness(scenario.pools[0], table_of(scenario), count_blocks)
    harness.run()
    state = harness.state
    assert not state.running
    assert state.kv.free == state.kv.blocks
    waiting = [sequence.row for sequence in state.waiting.listed()]
    assert sorted(waiting) == [row for row, times in harness.times.items() if times.finish < 0]


@law
@drawn
def test_a_replica_does_what_a_plain_loop_does(seed: int, requests: int) -> None:
    scenario = without_waits(draw_scenario(seed, requests, replicas=1, horizon_s=None, warm_up_s=0.0))
    columns = simulate(scenario).record.requests
    times = Harness(scenario.pools[0], table_of(scenario), lambda harness: None).run()
    for row, expected in times.items():
        assert _ns(columns["first_scheduled_s"][row]) == expected.first_scheduled
        assert _ns(columns["first_token_s"][row]) == expected.first_token
        assert _ns(columns["finish_s"][row]) == expected.finish
    too_long = np.flatnonzero(columns["outcome"] == "rejected").tolist()
    assert sorted([*times, *too_long]) == columns["request_id"].tolist()


def _ns(seconds: float) -> int:
    return -1 if np.isnan(seconds) else round(seconds * 1e9)
