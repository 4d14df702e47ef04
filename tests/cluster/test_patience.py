"""Clients that give up: what becomes of their requests, and of the server they leave."""

from typing import Any

import numpy as np
import pytest
from simpy import Environment

from llmsim.cluster.patience import Patience
from llmsim.results.results import Results
from llmsim.simulation import simulate
from llmsim.units import NS_PER_S
from llmsim.workload import RequestTable
from tests.equivalence.drawn import draw_scenario, impatient
from tests.factories import a_linear_cost, a_scenario, a_table

MS = 1_000_000
NEVER = -1


def run(table: RequestTable, **settings: Any) -> Results:
    """Requests on one engine whose iterations take 10 ms, scheduled one at a time."""
    cost = a_linear_cost(base_s=0.01, per_token_s=0.0)
    return simulate(a_scenario(table, cost=cost, **{"async_scheduling": False, **settings}))


def test_a_client_gives_up_after_its_timeout_and_keeps_what_came_until_then() -> None:
    # Iterations end every 10 ms: the 12th is under way at 115 ms, and its token reaches nobody.
    requests = run(a_table(output_tokens=50, timeout_ns=115 * MS)).record.requests
    assert (requests["outcome"][0], requests["reason"][0]) == ("aborted", "timeout")
    assert requests["output_tokens"][0] in (11, 12)
    assert np.isnan(requests["finish_s"][0])
    assert requests["attempts"][0] == 1


@pytest.mark.parametrize(("timeout_ms", "outcome"), [(99, "aborted"), (100, "finished"), (101, "finished")])
def test_an_answer_counts_if_it_is_whole_when_the_client_would_give_up(timeout_ms: int, outcome: str) -> None:
    assert run(a_table(output_tokens=10, timeout_ns=timeout_ms * MS)).record.requests["outcome"][0] == outcome


def test_a_request_given_up_on_frees_its_place_and_its_blocks() -> None:
    # The pool holds one of them at a time; the second is served when the first has gone.
    table = a_table(arrival_s=[0.0, 0.0], output_tokens=100, timeout_ns=[55 * MS, NEVER], max_tokens=100)
    for settings in ({"max_num_seqs": 1}, {"num_gpu_blocks_override": 14, "max_model_len": 208}):
        requests = run(table, **settings).record.requests
        assert requests["outcome"].tolist() == ["aborted", "finished"]
        assert requests["first_scheduled_s"][1] == pytest.approx(0.06)


def test_nothing_is_held_when_all_have_gone() -> None:
    table = a_table(arrival_s=[0.0, 0.0, 0.0, 9.0], output_tokens=[500, 300, 90, 5], timeout_ns=200 * MS)
    for caching in (False, True):
        iterations = run(table, enable_prefix_caching=caching).record.iterations
        # The last request has the pool to itself: 100 + 5 tokens are 7 blocks of 16.
        assert iterations["kv_blocks"][-1] == 7


def test_a_waiting_request_can_be_given_up_on() -> None:
    table = a_table(arrival_s=[0.0, 0.0], output_tokens=100, timeout_ns=[NEVER, 55 * MS])
    requests = run(table, max_num_seqs=1).record.requests
    assert requests["outcome"].tolist() == ["finished", "aborted"]
    assert np.isnan(requests["first_scheduled_s"][1])


def test_a_request_that_can_never_run_is_given_up_on_rather_than_stuck() -> None:
    longer = {"num_gpu_blocks_override": 5, "max_model_len": 200, "allow_long_max_model_len": True}
    assert run(a_table(timeout_ns=MS), **longer).record.requests["reason"][0] == "timeout"
    assert run(a_table(), **longer).record.requests["reason"][0] != "timeout"


def test_it_is_sent_again_after_each_wait_and_its_latency_counts_from_the_first_time() -> None:
    # Behind a request that takes 1 s: sent at 0, 300 (given up at 100, 200 later) and 800 ms (at 400, 400 later).
    table = a_table(
        arrival_s=[0.0, 0.0],
        output_tokens=[100, 2],
        timeout_ns=[NEVER, 100 * MS],
        backoff_ns=np.array([[NEVER] * 4, [200 * MS, 400 * MS, 250 * MS, 0]]),
    )
    requests = run(table, max_num_seqs=1).record.requests
    assert requests["attempts"].tolist() == [1, 4]
    assert requests["outcome"].tolist() == ["finished", "finished"]
    assert requests["arrival_s"][1] == 0
    assert requests["queued_s"][1] == pytest.approx(1.15)
    assert requests["finish_s"][1] == pytest.approx(1.17)


def test_who_has_retried_enough_gives_up_for_good_and_only_then_the_next_turn_comes() -> None:
    table = a_table(
        arrival_s=[0.0, 0.0, 0.0],
        output_tokens=[100, 2, 2],
        after=[-1, -1, 1],
        think_ns=50 * MS,
        timeout_ns=[NEVER, 100 * MS, NEVER],
        backoff_ns=np.array([[NEVER], [200 * MS], [NEVER]]),
    )
    requests = run(table, max_num_seqs=1).record.requests
    assert requests["attempts"].tolist() == [1, 2, 1]
    assert requests["reason"][1] == "timeout"
    assert requests["arrival_s"][2] == pytest.approx(0.45)


def test_who_is_about_to_send_again_at_the_horizon_is_in_flight() -> None:
    table = a_table(output_tokens=100, timeout_ns=100 * MS, backoff_ns=np.array([[5000 * MS]]))
    requests = run(table, horizon_s=1.0).record.requests
    assert (requests["outcome"][0], requests["arrival_s"][0], requests["attempts"][0]) == ("in_flight", 0.0, 1)


def test_laws_of_giving_up_hold_in_drawn_scenarios() -> None:
    for seed in range(60):
        scenario = impatient(draw_scenario(seed, horizon_s=None), seed)
        table, requests = scenario.workload.generate(seed), simulate(scenario).record.requests
        assert sorted(requests["request_id"]) == list(range(len(table)))
        assert table.timeout_ns is not None
        assert table.backoff_ns is not None
        patient, finished = table.timeout_ns < 0, requests["outcome"] == "finished"
        assert not np.any(patient & (requests["reason"] == "timeout"))
        assert np.all(requests["attempts"][patient] <= 1)
        most = 1 + np.cumprod(table.backoff_ns >= 0, axis=1).sum(axis=1)
        assert np.all(requests["attempts"] <= most)
        once = finished & ~patient & (requests["attempts"] == 1)
        e2e_ns = np.rint((requests["finish_s"] - requests["arrival_s"])[once] * NS_PER_S)
        assert np.all(e2e_ns <= table.timeout_ns[once] + scenario_entry_ns(requests, once))
        assert np.all(requests["attempts"][requests["reason"] == "timeout"] == most[requests["reason"] == "timeout"])


def scenario_entry_ns(requests: Any, rows: Any) -> Any:
    """How long requests took to the queue: until then a server does not see that a client has gone."""
    return np.rint((requests["queued_s"] - requests["arrival_s"])[rows] * NS_PER_S)


def test_one_event_waits_however_many_requests_do() -> None:
    env = Environment()
    found: list[tuple[int, int]] = []
    table = a_table(arrival_s=[0.0] * 1000, timeout_ns=[*range(1000, 0, -1)])
    patience = Patience(env, table, lambda row: found.append((int(env.now), row)))
    for row in range(999, -1, -1):
        patience.begin(row, 0)
    for row in range(500):
        patience.end(row)
    events = 0
    while env.peek() < float("inf"):
        env.step()
        events += 1
    assert found == [(1000 - row, row) for row in range(999, 499, -1)]
    assert events == 500
