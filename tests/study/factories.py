"""Scenarios whose answers are known from theory."""

from typing import Any

from llmsim.scenario import Scenario
from llmsim.workload import Client, ClientsWorkload
from llmsim.workload.lengths import Fixed
from tests.factories import a_linear_cost, a_scenario

SERVICE_S = 0.1


def an_md1(rate_per_s: float = 5.0, requests: int = 1000, **given: Any) -> Scenario:
    """One slot, one token, 0.1 s each: Poisson arrivals wait as in M/D/1."""
    client = Client(name="queue", rate_per_s=rate_per_s, prompt_tokens=Fixed(tokens=16), output_tokens=Fixed(tokens=1))
    return a_scenario(
        workload=ClientsWorkload(clients=(client,), requests=requests),
        cost=a_linear_cost(base_s=SERVICE_S, per_token_s=0.0),
        max_num_seqs=1,
        async_scheduling=False,
        enable_prefix_caching=False,
        **given,
    )


def md1_wait_s(load: float) -> float:
    """Pollaczek and Khinchine: the mean wait of M/D/1 at this load."""
    return load * SERVICE_S / (2 * (1 - load))


def a_closed_loop(users: int = 4, requests_per_user: int = 20, **given: Any) -> Scenario:
    """Users without think time; an iteration takes 10 ms and 0.1 ms a sequence, so that TPOT tells their number."""
    client = Client(
        name="users",
        users=users,
        requests_per_user=requests_per_user,
        prompt_tokens=Fixed(tokens=1),
        output_tokens=Fixed(tokens=50),
    )
    return a_scenario(
        workload=ClientsWorkload(clients=(client,)),
        cost=a_linear_cost(base_s=0.01, per_token_s=1e-4),
        async_scheduling=False,
        enable_prefix_caching=False,
        **given,
    )
