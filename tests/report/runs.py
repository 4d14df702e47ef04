"""Results for the tests of reports: the story of ``tests.results.factories``, and queues of many requests."""

from typing import Any

import numpy as np

from llmsim.results.record import REQUEST_COLUMNS, RunRecord
from llmsim.results.results import Results
from tests.results.factories import a_record, a_request, some_facts


def the_story(**facts: Any) -> Results:
    """Two finished requests and a rejected one in three iterations; keyword arguments replace facts."""
    return Results(a_record(facts=some_facts(**facts)))


def a_queue(load: float = 0.5, requests: int = 2000, seed: int = 0, ends_s: float = 1e9, **facts: Any) -> Results:
    """One server that takes a second for each request, at Poisson arrivals of ``load`` a second, FCFS.

    Record level ``requests``: no iterations. With ``ends_s`` the run stops then, with requests in flight.
    """
    arrival_s = np.cumsum(np.random.default_rng(seed).exponential(1 / load, requests))
    index = np.arange(requests)
    finish_s = index + 1 + np.maximum.accumulate(arrival_s - index)
    record = a_record(requests=[a_request(i) for i in range(requests)], iterations=[])
    done = finish_s <= ends_s
    columns = record.requests | {
        "arrival_s": arrival_s, "queued_s": arrival_s, "first_scheduled_s": finish_s - 1,
        "first_token_s": np.where(done, finish_s - 0.9, np.nan), "finish_s": np.where(done, finish_s, np.nan),
        "outcome": np.where(done, "finished", "in_flight").astype(object),
    }  # fmt: skip
    assert columns.keys() == REQUEST_COLUMNS.keys()
    window_end_s = float(min(ends_s, finish_s[-1]))
    stated = some_facts(**({"record": "requests", "window_end_s": window_end_s} | facts))
    return Results(RunRecord(stated, record.totals, columns, record.iterations, record.preemptions))
