"""Pairs of scenarios that are the same run in another guise."""

import math
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmsim.cluster.router import LeastOutstanding, RoundRobin, SessionAffinity
from llmsim.cost import LinearCost
from llmsim.engine.decisions import Decisions
from llmsim.results.record import Columns
from llmsim.scenario import Run, Scenario
from llmsim.simulation import simulate
from tests.equivalence.compare import differences, different_columns, rows, times
from tests.equivalence.drawn import MOST_REQUESTS, draw_scenario
from tests.factories import a_linear_cost, changed, table_of

law = settings(max_examples=40, derandomize=True, deadline=None, database=None)
drawn = given(seed=st.integers(0, 100_000), requests=st.integers(1, MOST_REQUESTS))

IDENTITY = ("request_id", "replica")


def unchanged(time_ns: Any) -> Any:
    """The same time."""
    return time_ns


def with_linear_cost(scenario: Scenario) -> Scenario:
    """The scenario with iterations of whole nanoseconds."""
    pools = [p if isinstance(p.cost, LinearCost) else replace(p, cost=a_linear_cost()) for p in scenario.pools]
    return changed(scenario, pools=pools)


def without(columns: Columns, names: tuple[str, ...]) -> Columns:
    """A table without some columns."""
    return {name: column for name, column in columns.items() if name not in names}


@law
@drawn
def test_logging_decisions_changes_nothing(seed: int, requests: int) -> None:
    scenario = draw_scenario(seed, requests)
    logs: list[Decisions] = []
    assert differences(simulate(scenario), simulate(scenario, decisions=logs)) == []
    assert len(logs) == sum(pool.replicas for pool in scenario.pools)


@law
@drawn
def test_one_replica_is_the_same_behind_any_router(seed: int, requests: int) -> None:
    routers = (RoundRobin(), LeastOutstanding(), SessionAffinity())
    first, *others = (simulate(draw_scenario(seed, requests, replicas=1, router=router)) for router in routers)
    for other in others:
        assert differences(first, other) == []


class ByParity:
    """Even sessions, and requests without one, go to the first replica, odd ones to the second."""

    def start(self, rng: np.random.Generator) -> "ByParity":
        """Has no state."""
        return self

    def choose(self, session: int, replicas: Any) -> int:
        """By the session alone."""
        return session % 2 if session >= 0 else 0


@law
@drawn
def test_two_replicas_are_two_runs(seed: int, requests: int) -> None:
    together = draw_scenario(seed, requests, replicas=2, router=ByParity())
    table, both = table_of(together), simulate(together).record
    chosen = np.where(table.session >= 0, table.session % 2, 0)
    pool = replace(together.pools[0], replicas=1)
    for replica in (0, 1):
        mine = np.flatnonzero(chosen == replica)
        if not len(mine):
            continue
        alone = simulate(changed(together, pools=[pool], router=LeastOutstanding(), requests=table.take(mine))).record
        got = without(rows(both.requests, mine), IDENTITY)
        assert different_columns(got, without(alone.requests, IDENTITY)) == []
        got = rows(both.iterations, both.iterations["replica"] == replica)
        assert different_columns(without(got, IDENTITY), without(alone.iterations, IDENTITY)) == []


@law
@drawn
def test_twice_the_time_is_twice_the_times(seed: int, requests: int) -> None:
    scenario = with_linear_cost(draw_scenario(seed, requests))
    table, run = table_of(scenario), scenario.run
    slow_table = replace(table, arrival_ns=2 * table.arrival_ns, think_ns=2 * table.think_ns)
    slow = changed(
        scenario,
        requests=slow_table,
        pools=[replace(pool, cost=_slower(pool.cost)) for pool in scenario.pools],
        run=Run(warm_up_s=2 * run.warm_up_s, horizon_s=run.horizon_s and 2 * run.horizon_s),
    )
    fast, slowly = simulate(scenario).record, simulate(slow).record
    for table_name in ("requests", "iterations", "preemptions"):
        expected = times(getattr(fast, table_name), lambda ns: 2 * ns)
        assert different_columns(expected, times(getattr(slowly, table_name), unchanged)) == []


def _slower(cost: Any) -> LinearCost:
    return LinearCost(**{field.name: 2 * getattr(cost, field.name) for field in fields(cost) if field.name != "kind"})


@law
@drawn
def test_later_is_only_later(seed: int, requests: int) -> None:
    shift_s = 7.0
    scenario = with_linear_cost(draw_scenario(seed, requests))
    table, run = table_of(scenario), scenario.run
    late_run = run
    if run.horizon_s is not None:
        late_run = Run(warm_up_s=run.warm_up_s + shift_s, horizon_s=run.horizon_s + shift_s)
    late_table = replace(table, arrival_ns=table.arrival_ns + round(shift_s * 1e9))
    late = changed(scenario, requests=late_table, run=late_run)
    now, then = simulate(scenario), simulate(late)
    lasting = ("max_itl_s", "compute_s", "hbm_s", "link_s", "overhead_s")
    for table_name in ("requests", "iterations", "preemptions"):
        expected, got = getattr(now.record, table_name), getattr(then.record, table_name)
        shifted = times(without(expected, lasting), lambda ns: ns + round(shift_s * 1e9))
        assert different_columns(shifted, times(without(got, lasting), unchanged)) == []
        kept = {name: column for name, column in expected.items() if name in lasting}
        assert different_columns(kept, {name: got[name] for name in kept}) == []


@law
@drawn
def test_a_run_replayed_from_its_own_trace_is_the_same(seed: int, requests: int) -> None:
    """Turns that arrived when the turn before had ended, sent at those times whatever happens."""
    scenario = draw_scenario(seed, requests, horizon_s=None, warm_up_s=0.0)
    table, first = table_of(scenario), simulate(scenario).record.requests
    if np.any(first["outcome"] == "aborted"):
        return
    order = np.argsort(first["arrival_s"], kind="stable")
    sent_ns = np.rint(first["arrival_s"] * 1e9).astype(np.int64)
    open_loop = replace(table, arrival_ns=sent_ns, after=np.full(len(table), -1)).take(order)
    again = simulate(changed(scenario, requests=open_loop)).record.requests
    assert different_columns(without(rows(first, order), IDENTITY[:1]), without(again, IDENTITY[:1])) == []


@law
@drawn
def test_a_prompt_cut_into_single_tokens_is_the_same_prompt(seed: int, requests: int) -> None:
    scenario = draw_scenario(seed, requests, enable_prefix_caching=True)
    table = table_of(scenario)
    if len(table.segment_offsets) == 1:
        return
    pieces = np.repeat(np.arange(len(table.segment_tokens)), table.segment_tokens)
    ends = np.concatenate([[0], np.cumsum(table.segment_tokens)])
    finely = replace(
        table,
        segment_offsets=ends[table.segment_offsets],
        segment_stream=table.segment_stream[pieces],
        segment_start=table.segment_start[pieces] + np.arange(len(pieces)) - ends[pieces],
        segment_tokens=np.ones(len(pieces), np.int64),
    )
    assert differences(simulate(scenario), simulate(changed(scenario, requests=finely))) == []


@law
@drawn
def test_one_slot_leaves_nothing_to_schedule_ahead(seed: int, requests: int) -> None:
    """With one request at a time, ended by length, asynchronous scheduling computes what synchronous does."""
    given: dict[str, Any] = {"max_num_seqs": 1, "max_num_batched_tokens": 8192, "horizon_s": None, "warm_up_s": 0.0}
    given |= {"enable_chunked_prefill": True, "enable_prefix_caching": False}
    scenario = with_linear_cost(draw_scenario(seed, requests, **given))
    table = table_of(scenario)
    by_length = replace(table, max_tokens=np.minimum(table.output_tokens, 5), output_tokens=table.output_tokens + 5)
    ahead, after = (
        simulate(changed(scenario, requests=by_length, pools=[_scheduled(pool, ahead) for pool in scenario.pools]))
        for ahead in (True, False)
    )
    assert different_columns(ahead.record.requests, after.record.requests) == []


def _scheduled(pool: Any, ahead: bool) -> Any:
    scheduler = replace(pool.engine.scheduler, async_scheduling=ahead)
    return replace(pool, engine=replace(pool.engine, scheduler=scheduler))


@pytest.mark.parametrize("level", ["requests", "summary"])
def test_record_levels_tell_the_same_figures(level: Any) -> None:
    """Sums are taken in another order, inter-token latencies and percentiles in bins of half a per cent, and what
    leaps spent their time on is shared out evenly at an edge of the window, as are the blocks that they take: a request
    holds up to a block more or less."""
    for seed in range(60):
        scenario = draw_scenario(seed)
        less = changed(scenario, run=replace(scenario.run, record=level))
        results = simulate(scenario)
        everything, something = results.figures(), simulate(less).figures()
        blocks = min(pool["num_gpu_blocks"] for pool in results.facts.pools)
        leasts = {"bound": 1e-3, "kv_usage": everything["running"]["mean"] / blocks}
        for key, value in everything.items():
            least = leasts.get(key, 1e-9)
            assert _close(value, something[key], least), f"seed {seed}, {key}: {value}, {something[key]}"


def _close(left: Any, right: Any, least: float) -> bool:
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_close(left[key], right[key], least) for key in left)
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=0.01, abs_tol=least)
    return bool(left == right)
