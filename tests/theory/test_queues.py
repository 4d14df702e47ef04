"""Queueing theory through the real engine, configured as the server that the theory is about.

One request at a time, one output token, and a cost per prompt token make an engine an M/G/1 server whose service time
is proportional to the prompt. Several slots and a cost per iteration, whatever its batch, make it c servers whose
service time is proportional to the output.
"""

from collections.abc import Callable
from math import factorial, sqrt
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from llmsim.cost import LinearCost
from llmsim.results.results import Results
from llmsim.simulation import simulate
from tests.factories import a_scenario, a_table

Floats = NDArray[np.float64]

HALF_WIDTH = 0.03
"""Largest half-width of a confidence interval, as a share of the mean."""


def serve_one_at_a_time(gaps_s: Floats, prompts: NDArray[np.int64], token_s: float, **given: Any) -> Results:
    """An engine that is a single server with service times ``token_s * prompts``."""
    table = a_table(arrival_s=np.cumsum(gaps_s), prompt_tokens=prompts, output_tokens=1, max_tokens=1)
    server = {
        "cost": LinearCost(per_token_s=token_s),
        "max_num_seqs": 1,
        "max_num_batched_tokens": int(prompts.max()),
        "async_scheduling": False,
        "enable_prefix_caching": False,
        "record": "requests",
    }
    return simulate(a_scenario(table, **{**server, **given}))


def waits(results: Results) -> Floats:
    """Seconds from arrival to the first iteration, of each request."""
    columns = results.record.requests
    return np.asarray(columns["first_scheduled_s"] - columns["arrival_s"])


def mean_wait(results: Results, steps_s: Floats, drift_s: float) -> tuple[float, float]:
    """The mean wait and the half-width of its 95 % confidence interval.

    Each wait is weighted by ``step / drift``, where the step is what the request itself adds to the next one's wait:
    its own work minus the gap after it. A step is independent of the wait before it and its mean, the drift, is known,
    so the weight changes no expectation; but it makes what a busy period adds to the sum nearly constant, where plain
    waits would need ten times the requests. The interval is that of the regenerative method: a request that finds the
    system empty starts anew (Crane and Iglehart, "Simulating Stable Stochastic Systems III", 1975).
    """
    columns = results.record.requests
    weighted = waits(results)[:-1] * steps_s / drift_s
    last_end_s = np.maximum.accumulate(columns["finish_s"])
    starts = np.flatnonzero(np.concatenate([[True], columns["arrival_s"][1:] > last_end_s[:-1]]))
    cycles = np.add.reduceat(weighted[: starts[-1]], starts[:-1])
    lengths = np.diff(starts)
    mean = cycles.sum() / lengths.sum()
    return float(mean), 1.96 * sqrt(((cycles - mean * lengths) ** 2).sum()) / float(lengths.sum())


def pollaczek_khinchine(load: float, mean_s: float, second_moment: float) -> float:
    """Mean wait of M/G/1 from the first two moments of the service time."""
    return load / (1 - load) * second_moment / (2 * mean_s)


def erlang_c(servers: int, load: float) -> float:
    """Probability that a request waits in M/M/c at this load of each server."""
    offered = servers * load
    full = offered**servers / factorial(servers) / (1 - load)
    return full / (sum(offered**k / factorial(k) for k in range(servers)) + full)


MEAN_TOKENS = 1000
SHORT, LONG = 200, 4200
DRAW_PROMPTS: dict[str, Callable[[np.random.Generator, int], NDArray[np.int64]]] = {
    "M/M/1": lambda rng, n: rng.geometric(1 / MEAN_TOKENS, n),
    "M/D/1": lambda rng, n: np.full(n, MEAN_TOKENS),
    "M/G/1": lambda rng, n: rng.choice([SHORT, LONG], n, p=[0.8, 0.2]),
}
SECOND_MOMENTS = {
    "M/M/1": MEAN_TOKENS * (2 * MEAN_TOKENS - 1.0),
    "M/D/1": MEAN_TOKENS**2,
    "M/G/1": 0.8 * SHORT**2 + 0.2 * LONG**2,
}


@pytest.mark.parametrize(
    ("kind", "load", "requests"),
    [("M/M/1", 0.9, 36_000), ("M/D/1", 0.9, 28_000), ("M/G/1", 0.7, 34_000)],
)
def test_single_server(kind: str, load: float, requests: int) -> None:
    service_s = 0.0251
    token_s = service_s / MEAN_TOKENS
    rng = np.random.default_rng(1)
    prompts, gaps_s = DRAW_PROMPTS[kind](rng, requests), rng.exponential(service_s / load, requests)
    results = serve_one_at_a_time(gaps_s, prompts, token_s)
    expected = pollaczek_khinchine(load, service_s, SECOND_MOMENTS[kind] * token_s**2)
    if (kind, load) == ("M/D/1", 0.9):
        assert expected == pytest.approx(0.1129, abs=1e-4)
    steps_s = token_s * prompts[:-1] - gaps_s[1:]
    mean, half = mean_wait(results, steps_s, service_s - service_s / load)
    assert half <= HALF_WIDTH * mean
    assert abs(mean - expected) <= half
    busy = 1 - results.summary()["bound"]["idle"]
    assert busy == pytest.approx(token_s * prompts.sum() / results.summary()["duration_s"], rel=1e-6)
    assert busy == pytest.approx(load, rel=0.02)


@pytest.mark.parametrize("ahead", [False, True])
def test_every_wait_follows_from_the_one_before(ahead: bool) -> None:
    """Lindley's recursion, to the nanosecond. With one slot there is nothing to schedule ahead."""
    rng = np.random.default_rng(7)
    prompts, gaps_s = rng.integers(1, 3000, 4000), np.round(rng.exponential(0.016, 4000), 5)
    results = serve_one_at_a_time(gaps_s, prompts, 1e-5, async_scheduling=ahead)
    arrival_ns = np.rint(np.cumsum(gaps_s) * 1e9).astype(int)
    free_ns, expected = 0, []
    for arrival, service in zip(arrival_ns.tolist(), (10_000 * prompts).tolist(), strict=True):
        expected.append(max(free_ns - arrival, 0))
        free_ns = max(free_ns, arrival) + service
    assert np.rint(waits(results) * 1e9).astype(int).tolist() == expected


def serve_several(gaps_s: Floats, outputs: NDArray[np.int64], servers: int, iteration_s: float) -> Results:
    """An engine that is ``servers`` servers with service times ``iteration_s * outputs``."""
    table = a_table(arrival_s=np.cumsum(gaps_s), prompt_tokens=1, output_tokens=outputs)
    return simulate(
        a_scenario(
            table,
            cost=LinearCost(base_s=iteration_s),
            max_num_seqs=servers,
            async_scheduling=False,
            enable_prefix_caching=False,
            record="requests",
        )
    )


def test_several_servers() -> None:
    """M/M/2. A slot is given away between iterations only, which adds at most one of them to a wait."""
    servers, load, mean_tokens, service_s, requests = 2, 0.95, 25, 1.0, 48_000
    iteration_s = service_s / mean_tokens
    rng = np.random.default_rng(3)
    outputs, gaps_s = rng.geometric(1 / mean_tokens, requests), rng.exponential(service_s / servers / load, requests)
    results = serve_several(gaps_s, outputs, servers, iteration_s)
    steps_s = iteration_s * outputs[:-1] / servers - gaps_s[1:]
    mean, half = mean_wait(results, steps_s, service_s / servers * (1 - 1 / load))
    expected = erlang_c(servers, load) * service_s / servers / (1 - load)
    assert half <= HALF_WIDTH * mean
    assert expected - half <= mean <= expected + half + iteration_s


def test_several_servers_take_the_next_in_line_as_they_get_free() -> None:
    """Every start of service, from a list of when the servers get free; all times are on the grid of iterations."""
    servers, requests = 4, 1500
    rng = np.random.default_rng(11)
    outputs, steps = rng.integers(1, 40, requests), np.cumsum(rng.geometric(1 / 6, requests))
    results = serve_several(np.diff(steps, prepend=0) * 0.01, outputs, servers, 0.01)
    free, expected = [0] * servers, []
    for arrival, output in zip(steps.tolist(), outputs.tolist(), strict=True):
        start = max(arrival, min(free))
        free[free.index(min(free))] = start + output
        expected.append(start)
    assert np.rint(results.record.requests["first_scheduled_s"] * 100).astype(int).tolist() == expected
