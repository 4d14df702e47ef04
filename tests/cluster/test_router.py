"""Who serves a request: policies on their own, and what a fleet shows them at each arrival."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.random import Generator

from llmsim.cluster.router import LeastOutstanding, RoundRobin, Router, SessionAffinity
from llmsim.simulation import simulate
from tests.factories import a_linear_cost, a_scenario, a_table


@dataclass
class Seen:
    """A replica as a router sees it."""

    outstanding: int


def choices(router: Router, sessions: list[int], outstanding: list[int]) -> list[int]:
    """Where requests go, one after another, while the replicas' load stays the same."""
    chooser = router.start(np.random.default_rng(0))
    return [chooser.choose(session, [Seen(each) for each in outstanding]) for session in sessions]


def busy_table(requests: int = 400, **columns: Any) -> Any:
    """More requests than the replicas get through at once, of unequal lengths."""
    rng = np.random.default_rng(5)
    gaps_s = rng.exponential(0.02, requests)
    return a_table(arrival_s=np.cumsum(gaps_s), output_tokens=rng.integers(1, 60, requests), **columns)


def test_each_in_turn() -> None:
    assert choices(RoundRobin(), [-1] * 5, [9, 0, 3]) == [0, 1, 2, 0, 1]


def test_the_fewest_outstanding_and_the_first_of_several() -> None:
    assert choices(LeastOutstanding(), [-1, -1], [4, 2, 7, 2]) == [1, 1]


def test_a_session_stays_whatever_the_load() -> None:
    chooser = SessionAffinity().start(np.random.default_rng(0))
    loads = ([3, 1], [0, 9], [0, 9], [5, 2])
    sessions = (7, 7, 8, 8)
    chosen = [
        chooser.choose(session, [Seen(each) for each in load]) for session, load in zip(sessions, loads, strict=True)
    ]
    assert chosen == [1, 1, 0, 0]


def test_requests_without_a_session_are_not_bound_together() -> None:
    chooser = SessionAffinity().start(np.random.default_rng(0))
    loads = ([0, 1], [1, 0])
    assert [chooser.choose(-1, [Seen(each) for each in load]) for load in loads] == [0, 1]


def test_the_least_loaded_replica_gets_every_request_of_a_run() -> None:
    """Waiting and running requests count, of all sent before; those that end at the same instant no longer do."""
    results = simulate(a_scenario(busy_table(), replicas=4, max_num_seqs=3, router=LeastOutstanding()))
    columns = results.record.requests
    for row, arrival_s in enumerate(columns["arrival_s"]):
        there = columns["finish_s"][:row] > arrival_s
        outstanding = np.bincount(columns["replica"][:row][there], minlength=4)
        assert columns["replica"][row] == np.argmin(outstanding)


@pytest.mark.parametrize("router", [RoundRobin(), LeastOutstanding(), SessionAffinity()])
def test_a_busy_fleet_is_balanced(router: Router) -> None:
    results = simulate(a_scenario(busy_table(session=np.arange(400)), replicas=4, max_num_seqs=3, router=router))
    served = np.bincount(results.record.requests["replica"], minlength=4)
    assert served.min() >= 0.8 * served.max()


def test_sessions_stay_together_in_a_run() -> None:
    sessions = np.random.default_rng(1).integers(-1, 40, 400)
    columns = simulate(a_scenario(busy_table(session=sessions), replicas=4, router=SessionAffinity())).record.requests
    for session in range(40):
        assert len(set(columns["replica"][columns["session"] == session])) == 1
    assert len(set(columns["replica"][sessions < 0])) == 4


def test_a_router_does_not_change_the_workload() -> None:
    rejected_too = busy_table(prompt_tokens=np.where(np.arange(400) % 50 == 7, 10_000_000, 100))
    arrivals = [
        simulate(a_scenario(rejected_too, replicas=3, router=router)).record.requests["arrival_s"]
        for router in (RoundRobin(), LeastOutstanding())
    ]
    assert np.array_equal(arrivals[0], arrivals[1])
    assert np.array_equal(arrivals[0], rejected_too.arrival_ns / 1e9)


class Random:
    """A user's own router."""

    def start(self, rng: Generator) -> "Random":
        """Keeps its random stream."""
        self.rng = rng
        return self

    def choose(self, session: int, replicas: list[Any]) -> int:
        """Any of them."""
        return int(self.rng.integers(len(replicas)))


def test_a_routers_random_stream_is_that_of_the_seed() -> None:
    chosen = [
        simulate(a_scenario(busy_table(), replicas=3, router=Random(), seed=seed)).record.requests["replica"].tolist()
        for seed in (1, 1, 2)
    ]
    assert chosen[0] == chosen[1] != chosen[2]


def test_a_request_is_routed_after_those_that_end_at_its_instant_have_left() -> None:
    """Iterations of 10 ms: the second replica's request ends at 20 ms, when the third request arrives."""
    table = a_table(arrival_s=[0.0, 0.0, 0.02], output_tokens=[5, 2, 1])
    cost = a_linear_cost(per_token_s=0.0)
    columns = simulate(a_scenario(table, replicas=2, cost=cost, router=LeastOutstanding())).record.requests
    assert columns["finish_s"][1] == 0.02
    assert columns["replica"].tolist() == [0, 1, 1]
