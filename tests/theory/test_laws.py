"""Laws that every run obeys, over drawn scenarios: each is checked by adding up the same thing another way."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from llmsim.engine.decisions import Decisions
from llmsim.engine.vllm import VllmScheduler
from llmsim.results.results import Results
from llmsim.scenario import Scenario
from llmsim.simulation import simulate
from tests.equivalence.drawn import MOST_REQUESTS, draw_scenario
from tests.factories import table_of

RUNS = 100

Preemption = tuple[int, int, int, int]
"""Row, and when it lost its blocks, was admitted again, and emitted its next token; -1 for what never came."""

TIMES = ("arrival_s", "queued_s", "first_scheduled_s", "first_token_s", "finish_s")


def law(check: Callable[[int, int], None]) -> Callable[[], None]:
    """A test of ``check`` on ``RUNS`` drawn scenarios, given by their seed and number of requests."""

    def test() -> None:
        for seed in range(RUNS):
            requests = 1 + 7 * seed % MOST_REQUESTS
            try:
                check(seed, requests)
            except AssertionError as error:
                error.add_note(f"scenario: draw_scenario({seed}, {requests})")
                raise

    test.__doc__ = check.__doc__
    return test


@cache
def run(seed: int, requests: int) -> tuple[Scenario, Results]:
    """A drawn scenario and its results, which no law changes."""
    scenario = draw_scenario(seed, requests)
    return scenario, simulate(scenario)


def ns(seconds: Any) -> Any:
    """Times in whole nanoseconds; those that never came are -1."""
    return np.where(np.isnan(seconds), -1, np.rint(np.nan_to_num(seconds) * 1e9)).astype(np.int64)


def times_of(results: Results) -> dict[str, Any]:
    """The times of every request in nanoseconds."""
    return {name.removesuffix("_s"): ns(results.record.requests[name]) for name in TIMES}


def token_times(logs: list[Decisions]) -> dict[int, list[int]]:
    """When each request emitted its tokens, from the log of decisions."""
    times = defaultdict(list)
    for log in logs:
        for step in log.steps:
            if "finished" in step:
                for row in step["emitted"]:
                    times[row].append(step["gpu_end"])
    return times


@law
def test_every_request_ends_in_exactly_one_way(seed: int, requests: int) -> None:
    scenario, results = run(seed, requests)
    table, columns, time = table_of(scenario), results.record.requests, times_of(results)
    outcome, reason = columns["outcome"], columns["reason"]
    summary = dict(results.figures()["requests"])
    assert len(outcome) == len(table) == summary.pop("total") == sum(summary.values())
    assert np.all(reason != "")
    assert np.array_equal(outcome == "finished", time["finish"] >= 0)
    assert np.all(np.isin(reason[outcome == "finished"], ["stop", "length"]))
    unserved = outcome == "rejected"
    assert np.all(time["queued"][unserved] < 0)
    assert np.all(time["arrival"][unserved] >= 0)
    if scenario.run.horizon_s is None:
        assert not np.any(outcome == "in_flight")
    else:
        assert not np.any(outcome == "aborted")


@law
def test_prompts_are_rejected_exactly_when_too_long(seed: int, requests: int) -> None:
    scenario, results = run(seed, requests)
    longest = [pool.deployment().ledger().max_model_len for pool in scenario.pools for _ in range(pool.replicas)]
    columns = results.record.requests
    served, rejected = columns["replica"] >= 0, columns["outcome"] == "rejected"
    assert np.all(columns["prompt_tokens"][served] < np.array(longest)[columns["replica"][served]])
    assert np.all(columns["prompt_tokens"][rejected] >= min(longest))


@law
def test_nothing_happens_before_its_cause(seed: int, requests: int) -> None:
    scenario, results = run(seed, requests)
    time, table = times_of(results), table_of(scenario)
    for earlier, later in zip(list(time.values())[:-1], list(time.values())[1:], strict=True):
        both = later >= 0
        assert np.all(earlier[both] >= 0)
        assert np.all(earlier[both] <= later[both])
    assert np.all(time["arrival"][time["arrival"] >= 0] >= table.arrival_ns[time["arrival"] >= 0])
    follows = np.flatnonzero((table.after >= 0) & (time["arrival"] >= 0))
    before = table.after[follows]
    due = np.maximum(table.arrival_ns[follows], time["finish"][before] + table.think_ns[follows])
    finished = time["finish"][before] >= 0
    assert np.array_equal(time["arrival"][follows][finished], due[finished])
    assert np.all(results.record.requests["outcome"][before[~finished]] == "rejected")
    assert np.all(time["arrival"][follows][~finished] >= time["arrival"][before][~finished])


@law
def test_tokens_emitted_are_those_asked_for(seed: int, requests: int) -> None:
    scenario = draw_scenario(seed, requests, replicas=1)
    results = simulate(scenario)
    table, columns = table_of(scenario), results.record.requests
    room = scenario.pools[0].deployment().ledger().max_model_len - table.prompt_tokens
    limit = np.where(table.max_tokens < 0, room, np.minimum(table.max_tokens, room))
    finished = columns["outcome"] == "finished"
    expected = np.minimum(table.output_tokens, limit)
    assert np.array_equal(columns["output_tokens"][finished], expected[finished])
    unfinished = ~finished & (columns["replica"] >= 0)
    assert np.all(columns["output_tokens"][unfinished] < expected[unfinished])
    ends_by_length = columns["reason"][finished] == "length"
    assert np.all(table.output_tokens[finished][ends_by_length] >= limit[finished][ends_by_length])


@law
def test_iterations_emit_the_tokens_of_the_requests(seed: int, requests: int) -> None:
    record = run(seed, requests)[1].record
    assert record.iterations["sampled"].sum() == record.requests["output_tokens"].sum()
    assert record.iterations["preempted"].sum() <= record.requests["preemptions"].sum()


@law
def test_token_times_add_up_to_the_latency(seed: int, requests: int) -> None:
    logs: list[Decisions] = []
    results = simulate(draw_scenario(seed, requests, warm_up_s=0.0), decisions=logs)
    columns, time = results.record.requests, times_of(results)
    emitted = token_times(logs)
    gaps = []
    for row, count in enumerate(columns["output_tokens"]):
        ends = emitted.get(row, [])
        assert len(ends) == count
        if count:
            assert ends[0] == time["first_token"][row]
        gaps.append(np.diff(ends))
        if time["finish"][row] >= 0:
            ttft = time["first_token"][row] - time["arrival"][row]
            assert ttft + gaps[-1].sum() == time["finish"][row] - time["arrival"][row]
        # Iterations are counted in parts of a nanosecond, between two tokens is a whole number of them.
        assert abs(ns(columns["max_itl_s"][row]) - max(gaps[-1], default=-1)) <= 1
    values, counts = np.unique(np.concatenate(gaps), return_counts=True)
    totals = results.record.totals
    assert np.array_equal(ns(totals.itl_values_s), values)
    assert np.array_equal(totals.itl_counts, counts)


@law
def test_every_preemption_is_told(seed: int, requests: int) -> None:
    """When a request lost its blocks, was admitted again, and emitted its next token: from the log of decisions."""
    logs: list[Decisions] = []
    results = simulate(draw_scenario(seed, requests), decisions=logs)
    table = results.record.preemptions
    names = ("preempted_s", "resumed_s", "caught_up_s")
    told = zip(table["request_id"].tolist(), *(ns(table[name]).tolist() for name in names), strict=True)
    logged = (preemption for log in logs for preemption in preemptions_in(log))
    assert before_the_next(told) == before_the_next(logged)


def preemptions_in(log: Decisions) -> Iterator[Preemption]:
    """The preemptions of a replica from its log."""
    for number, step in enumerate(log.steps):
        for row in step["preempted"]:
            later = log.steps[number + 1 :]
            resumes = next((each for each in later if row in each["resumed"]), None)
            emits = (each for each in later if resumes and each["step"] >= resumes["step"] and row in each["emitted"])
            next_token = next(emits, {})
            caught_up = next_token["gpu_end"] if "finished" in next_token else -1
            yield row, step["t"], resumes["t"] if resumes else -1, caught_up


def before_the_next(preemptions: Iterable[Preemption]) -> list[Preemption]:
    """Preemptions in order; a request that loses its blocks again first has not caught up."""
    ordered = sorted(preemptions)
    return [
        (row, lost, resumed, -1 if row == following[0] and caught_up > following[1] else caught_up)
        for (row, lost, resumed, caught_up), following in pairwise([*ordered, (-1, 0, 0, 0)])
    ]


@law
def test_littles_law(seed: int, requests: int) -> None:
    """L = lambda * W: the mean number in the system is the time spent there, summed over requests, per time."""
    results = run(seed, requests)[1]
    facts, totals, time = results.facts, results.record.totals, times_of(results)
    start, end = ns(facts.window_start_s), ns(facts.window_end_s)
    queued = time["queued"] >= 0
    left = np.where(time["finish"] >= 0, time["finish"], end)
    spent = np.clip(left[queued], start, end) - np.clip(time["queued"][queued], start, end)
    in_system = (totals.running_mean + totals.waiting_mean) * (end - start)
    assert np.isclose(in_system, spent.sum(), rtol=1e-9, atol=1.0)


@law
def test_running_requests_are_in_every_iteration(seed: int, requests: int) -> None:
    """Synchronous scheduling: the running time of requests is that of the iterations they were counted in."""
    scenario = draw_scenario(seed, requests, async_scheduling=False, horizon_s=None, warm_up_s=0.0)
    results = simulate(scenario)
    iterations, totals = results.record.iterations, results.record.totals
    lasting = ns(iterations["end_s"]) - ns(iterations["start_s"])
    window = ns(results.facts.window_end_s) - ns(results.facts.window_start_s)
    assert np.isclose(totals.running_mean * window, (iterations["running"] * lasting).sum(), rtol=1e-9, atol=1.0)


@law
def test_time_is_spent_on_something(seed: int, requests: int) -> None:
    """Utilisation law: what iterations took, by resource, is the time that replicas were busy; the rest is idle."""
    scenario = draw_scenario(seed, requests, async_scheduling=False)
    results = simulate(scenario)
    facts, bound_s = results.facts, results.record.totals.bound_s
    start, end = facts.window_start_s, facts.window_end_s
    iterations = results.record.iterations
    busy = np.clip(iterations["end_s"], start, end) - np.clip(iterations["start_s"], start, end)
    rounding = 1e-9 * (1 + len(busy))
    assert abs(bound_s["idle"] - ((end - start) * facts.replicas - busy.sum())) <= rounding
    assert abs(sum(bound_s.values()) - (end - start) * facts.replicas) <= rounding


@law
def test_iterations_of_a_replica_follow_one_another(seed: int, requests: int) -> None:
    scenario, results = run(seed, requests)
    iterations = results.record.iterations
    pools = [pool for pool in scenario.pools for _ in range(pool.replicas)]
    for replica, pool in enumerate(pools):
        mine = iterations["replica"] == replica
        start, end = ns(iterations["start_s"][mine]), ns(iterations["end_s"][mine])
        assert np.array_equal(iterations["iteration"][mine], np.arange(mine.sum()))
        assert np.all(start[1:] >= end[:-1])
        assert np.all(end >= start)
        deployment = pool.deployment()
        if isinstance(pool.engine.scheduler, VllmScheduler):
            tokens = iterations["prefill_tokens"][mine] + iterations["decode_tokens"][mine]
            assert np.all(tokens <= deployment.max_num_batched_tokens)
        assert np.all(iterations["running"][mine] <= deployment.max_num_seqs)
        assert np.all(iterations["kv_blocks"][mine] <= deployment.ledger().num_gpu_blocks - 1)
        assert np.all(iterations["kv_blocks"][mine] >= 0)
