"""When requests are sent."""

from typing import Any

import numpy as np
from simpy import Environment

from llmsim.cluster.arrivals import Arrivals
from llmsim.simulation import simulate
from llmsim.workload import RequestTable
from tests.factories import a_linear_cost, a_scenario, a_table

MS = 1_000_000


def sent(table: RequestTable, lasting_ms: dict[int, int], until_ms: int = 1000) -> list[tuple[int, int]]:
    """(milliseconds, row) of everything sent when row ``r`` ends ``lasting_ms[r]`` after it was sent, others never."""
    env = Environment()
    found: list[tuple[int, int]] = []

    def send(row: int, now_ns: int) -> None:
        assert now_ns == env.now
        found.append((now_ns // MS, row))
        if row in lasting_ms:
            ends = env.timeout(lasting_ms[row] * MS)
            ends.callbacks.append(lambda event: arrivals.ended(row, int(env.now)))

    arrivals = Arrivals(env, table, send)
    env.run(until=until_ms * MS)
    return found


def at(*arrival_ms: int, **columns: Any) -> RequestTable:
    """Requests at these times."""
    think_ns = np.array(columns.pop("think_ms", 0)) * MS
    return a_table(arrival_ns=np.array(arrival_ms) * MS, think_ns=think_ns, **columns)


def test_every_row_at_its_time_and_those_of_one_instant_in_order() -> None:
    assert sent(at(0, 5, 5, 5, 9), {}) == [(0, 0), (5, 1), (5, 2), (5, 3), (9, 4)]


def test_a_successor_comes_after_the_end_and_the_think_time() -> None:
    table = at(0, 0, 0, after=[-1, 0, 1], think_ms=[0, 30, 5])
    assert sent(table, {0: 10, 1: 7}) == [(0, 0), (40, 1), (52, 2)]


def test_a_successor_never_comes_before_its_own_time() -> None:
    assert sent(at(0, 100, after=[-1, 0]), {0: 10}) == [(0, 0), (100, 1)]


def test_nobody_follows_who_has_not_ended() -> None:
    assert sent(at(0, 0, after=[-1, 0]), {}) == [(0, 0)]


def test_several_may_wait_for_one() -> None:
    table = at(0, 0, 0, after=[-1, 0, 0], think_ms=[0, 20, 10])
    assert sent(table, {0: 10}) == [(0, 0), (20, 2), (30, 1)]


def test_successors_and_others_due_at_one_instant_are_sent_in_row_order() -> None:
    table = at(0, 0, 40, 40, after=[-1, 0, -1, -1], think_ms=[0, 30, 0, 0])
    assert sent(table, {0: 10}) == [(0, 0), (40, 1), (40, 2), (40, 3)]
    table = at(0, 20, 20, 20, after=[-1, -1, 0, -1], think_ms=[0, 0, 10, 0])
    assert sent(table, {0: 10}) == [(0, 0), (20, 1), (20, 2), (20, 3)]


def test_a_rejected_turn_ends_at_once_and_the_next_turn_comes() -> None:
    table = a_table(arrival_s=0.0, prompt_tokens=[10_000_000, 100], after=[-1, 0], think_ns=[0, 500 * MS])
    columns = simulate(a_scenario(table)).record.requests
    assert columns["outcome"].tolist() == ["rejected", "finished"]
    assert columns["arrival_s"].tolist() == [0.0, 0.5]


def test_the_api_servers_time_comes_before_the_queue() -> None:
    table = a_table(arrival_s=[1.0, 1.001])
    columns = simulate(a_scenario(table, cost=a_linear_cost(request_s=0.02))).record.requests
    assert columns["arrival_s"].tolist() == [1.0, 1.001]
    assert columns["queued_s"].tolist() == [1.02, 1.021]


def test_an_arrival_at_the_end_of_an_iteration_is_in_the_next_one() -> None:
    """Iterations of 10 ms: who arrives at 20 ms, when the second one ends, is computed from then on."""
    table = a_table(arrival_s=[0.0, 0.02], output_tokens=5)
    cost = a_linear_cost(per_token_s=0.0)
    columns = simulate(a_scenario(table, cost=cost, async_scheduling=False)).record.requests
    assert columns["first_scheduled_s"][1] == 0.02
    assert columns["first_token_s"][1] == 0.03
