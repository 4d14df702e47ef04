"""The one number that says how much traffic a scenario has, and a first guess at how much it bears."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from llmsim.closed_form import saturated
from llmsim.deployment import batch_defaults
from llmsim.errors import ScenarioError
from llmsim.scenario import Pool, Scenario
from llmsim.units import NS_PER_S
from llmsim.workload import ClientsWorkload, PresetWorkload, RequestTable, TraceWorkload, Workload
from llmsim.workload.lengths import Fixed


class Load(NamedTuple):
    """How a scenario's load is told and changed."""

    name: str
    """Such as ``requests/s`` or ``users``."""
    value: float
    """The scenario's own."""
    at: Callable[[float], Scenario]
    """The scenario at another load; the same seed keeps gaps, lengths and prompts."""
    whole: bool
    """Whether only whole numbers make sense."""


@dataclass(frozen=True, slots=True)
class FirstRequests:
    """The first rows of a workload: a shorter run of the same."""

    workload: Workload
    share: float

    def generate(self, seed: int) -> RequestTable:
        """The first ``share`` of the rows, one at least."""
        table = self.workload.generate(seed)
        return table.take(np.arange(max(1, round(self.share * len(table)))))


class Shape(NamedTuple):
    """Mean lengths of a workload's requests."""

    prompt_tokens: int
    output_tokens: int


def load_of(scenario: Scenario) -> Load:
    """The load of a scenario: a rate, or for closed loops a number of users.

    Raises:
        ScenarioError: for a workload of the user's own class, or with open and closed loops.
    """
    workload = scenario.workload
    if isinstance(workload, PresetWorkload):
        rate = workload.rate_per_s or _rate_per_s(workload.generate(scenario.seed))
        return Load("requests/s", rate, lambda load: scenario.with_settings({"workload.rate_per_s": load}), False)
    if isinstance(workload, TraceWorkload):
        rate = _rate_per_s(workload.generate(scenario.seed)) / workload.rate_scale
        return Load(
            "requests/s",
            rate * workload.rate_scale,
            lambda load: scenario.with_settings({"workload.rate_scale": load / rate}),
            False,
        )
    if isinstance(workload, ClientsWorkload):
        return _load_of_clients(scenario, workload)
    raise ScenarioError("workload: its load cannot be changed; allowed kinds are preset, trace and clients")


def shorter(scenario: Scenario, share: float) -> Scenario:
    """The scenario with the first requests only."""
    return scenario.with_settings({"workload": FirstRequests(scenario.workload, share)})


def shape_of(table: RequestTable) -> Shape:
    """Mean prompt and output tokens."""
    outputs = np.where(table.max_tokens < 0, table.output_tokens, np.minimum(table.output_tokens, table.max_tokens))
    return Shape(max(1, round(float(table.prompt_tokens.mean()))), max(1, round(float(outputs.mean()))))


def rate_bound_per_s(pool: Pool, shape: Shape) -> float:
    """Requests a second of a pool whose slots are always full: ``closed_form.saturated`` for each engine.

    The batch is what slots and KV pool allow. An estimate, near the top from above: it knows no queue, and no
    overlap of prompts and decodes in one iteration, which real schedulers have.
    """
    deployment = pool.deployment()
    slots = deployment.max_num_seqs or batch_defaults(deployment.accelerator)[1]
    held = deployment.ledger().kv_tokens // (shape.prompt_tokens + shape.output_tokens)
    sequences = max(1, min(slots, held))
    budget = deployment.max_num_batched_tokens or batch_defaults(deployment.accelerator)[0]
    together = replace(deployment, max_num_batched_tokens=min(budget, slots * shape.prompt_tokens))
    found = saturated(pool.cost.start(deployment), together, *shape, sequences)
    return pool.replicas * deployment.data_parallel_size / found.request_s if found.request_s else float("inf")


def _load_of_clients(scenario: Scenario, workload: ClientsWorkload) -> Load:
    clients = workload.clients
    rates = {
        f"workload.clients.{i}.rate_per_s": client.rate_per_s
        for i, client in enumerate(clients)
        if client.rate_per_s is not None
    }
    if workload.rate_per_s is not None:
        rates["workload.rate_per_s"] = workload.rate_per_s
    if rates and any(client.users is not None for client in clients):
        raise ScenarioError("workload: some clients have a rate and some users, so that there is no one load")
    if rates:
        one_turn = all(client.turns == Fixed(tokens=1) for client in clients)
        total = sum(rates.values())
        return Load(
            "requests/s" if one_turn else "sessions/s",
            total,
            lambda load: scenario.with_settings({key: rate / total * load for key, rate in rates.items()}),
            False,
        )
    users = sum(client.users or 0 for client in clients)
    shares = {f"workload.clients.{i}.users": (client.users or 0) / users for i, client in enumerate(clients)}
    return Load(
        "users",
        users,
        lambda load: scenario.with_settings({key: max(1, round(share * load)) for key, share in shares.items()}),
        True,
    )


def _rate_per_s(table: RequestTable) -> float:
    first = table.arrival_ns[table.after < 0]
    span_s = float(first.max() - first.min()) / NS_PER_S
    if span_s <= 0:
        raise ScenarioError("workload: all requests arrive at once, so that it has no rate")
    return len(table) / span_s
