"""No decision reads what a real server cannot know: how many tokens a request will yet generate."""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from llmsim.engine.decisions import Decisions
from llmsim.simulation import simulate
from llmsim.workload import RequestTable
from tests.equivalence.drawn import MOST_REQUESTS, draw_scenario
from tests.factories import changed, table_of

DECIDED = (
    *("step", "t", "gpu_start", "gpu_end", "arrived", "sched", "total", "ctx", "new", "resumed", "preempted", "hits"),
    *("running", "waiting", "free_blocks"),
)
"""What a step's log says of the decision itself; the rest of it is what came out."""


def other_outputs(table: RequestTable, seed: int) -> RequestTable:
    """The same requests, some of which generate fewer or more tokens."""
    rng = np.random.default_rng(seed)
    outputs = np.where(rng.random(len(table)) < 0.3, rng.geometric(1 / 60, len(table)), table.output_tokens)
    return replace(table, output_tokens=outputs)


def decisions(scenario: Any, table: RequestTable) -> tuple[list[Decisions], Any]:
    """The log of every replica, and the requests, of a run of other requests."""
    logs: list[Decisions] = []
    return logs, simulate(changed(scenario, requests=table), decisions=logs).record.requests


def first_difference_ns(left: Any, right: Any) -> float:
    """When the first request ended in one run that did not end then in the other."""
    ends = np.stack([left["finish_s"], right["finish_s"]])
    differ = (ends[0] != ends[1]) & ~np.all(np.isnan(ends), axis=0)
    return float(np.nanmin(ends[:, differ])) * 1e9 if differ.any() else float("inf")


@settings(max_examples=75, derandomize=True, deadline=None, database=None)
@given(seed=st.integers(0, 100_000), requests=st.integers(1, MOST_REQUESTS))
def test_decisions_are_the_same_until_an_output_ends_otherwise(seed: int, requests: int) -> None:
    scenario = draw_scenario(seed, requests)
    table = table_of(scenario)
    logs, ended = decisions(scenario, table)
    other_logs, ended_otherwise = decisions(scenario, other_outputs(table, seed))
    parted_ns = first_difference_ns(ended, ended_otherwise)
    for log, other in zip(logs, other_logs, strict=True):
        before = [
            [step for step in each.steps if round(step["t"]) < round(parted_ns)] if parted_ns < 1e18 else each.steps
            for each in (log, other)
        ]
        assert [[step[name] for name in DECIDED] for step in before[0]] == [
            [step[name] for name in DECIDED] for step in before[1]
        ]
