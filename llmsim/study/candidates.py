"""Ways to serve a model, and what the closed form says of each before anything is simulated."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from llmsim.catalog import names
from llmsim.closed_form import Saturation, saturated
from llmsim.deployment import batch_defaults
from llmsim.errors import ScenarioError
from llmsim.hardware import load_accelerator
from llmsim.scenario import Pool, Scenario
from llmsim.study.load import Shape
from llmsim.study.running import kept


@dataclass(frozen=True, slots=True)
class Choices:
    """What a plan may choose from; every combination is a candidate."""

    accelerators: tuple[str, ...] = ()
    """Catalogue names; empty: all of the catalogue with a price and efficiencies of their own."""
    tensor_parallel_sizes: tuple[int, ...] = (1, 2, 4, 8)
    pipeline_parallel_sizes: tuple[int, ...] = (1,)
    quantizations: tuple[str | None, ...] = (None,)
    """Of the weights; None: as the scenario has it."""
    max_num_seqs: tuple[int | None, ...] = (None,)
    """None: as the scenario has it."""
    enable_expert_parallel: tuple[bool, ...] = (False,)


class Candidate(NamedTuple):
    """One way: a replica of it as a scenario, and its closed form."""

    name: str
    scenario: Scenario
    """With one pool of one replica."""
    gpus: int
    """Of a replica."""
    usd_per_hour: float
    """Of a replica; infinite when no price is known."""
    bound: Saturation
    bound_per_s: float
    """Requests a second of a replica with the largest batch that keeps the SLO's TPOT."""


class Loser(NamedTuple):
    """A way that was not chosen."""

    name: str
    reason: str


def candidates(scenario: Scenario, choices: Choices, shape: Shape) -> tuple[list[Candidate], list[Loser]]:
    """The ways that memory and the closed form allow, the cheapest bound first; and why the others do not.

    Raises:
        ScenarioError: when the scenario has several pools.
    """
    if len(scenario.pools) > 1:
        raise ScenarioError(f"{scenario.name}: a plan is for one pool, and there are {len(scenario.pools)}")
    found, losers = [], []
    for chosen in _combinations(choices):
        try:
            candidate = _candidate(scenario, chosen, shape)
        except ScenarioError as error:
            losers.append(Loser(_name(chosen), str(error).removeprefix("scenario: pools[0]: ")))
            continue
        reason = _ruled_out(candidate, scenario.slo)
        if reason:
            losers.append(Loser(candidate.name, reason))
        else:
            found.append(candidate)
    found.sort(key=lambda candidate: (candidate.usd_per_hour / candidate.bound_per_s, candidate.name))
    return found, losers


def bound_within_slo(pool: Pool, shape: Shape, slo: dict[str, float]) -> tuple[Saturation, float]:
    """The closed form at the largest batch whose TPOT keeps the SLO, and requests a second of one engine."""
    deployment = pool.deployment()
    cost = pool.cost.start(deployment)
    slots = deployment.max_num_seqs or batch_defaults(deployment.accelerator)[1]
    held = deployment.ledger().kv_tokens // (shape.prompt_tokens + shape.output_tokens)
    limit_s = _limit(slo, "tpot")
    low, high = 1, max(1, min(slots, held))
    while low < high:
        middle = (low + high + 1) // 2
        if saturated(cost, deployment, *shape, middle).tpot_s <= limit_s:
            low = middle
        else:
            high = middle - 1
    found = saturated(cost, deployment, *shape, low)
    return found, 1 / found.request_s


def _combinations(choices: Choices) -> list[dict[str, Any]]:
    chips: Sequence[str] = choices.accelerators or [name for name in names("accelerators") if _well_known(name)]
    values = {
        "accelerator": chips,
        "tensor_parallel_size": choices.tensor_parallel_sizes,
        "pipeline_parallel_size": choices.pipeline_parallel_sizes,
        "quantization": choices.quantizations,
        "engine.scheduler.max_num_seqs": choices.max_num_seqs,
        "enable_expert_parallel": choices.enable_expert_parallel,
    }
    return [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]


def _well_known(name: str) -> bool:
    chip = load_accelerator(name)
    return chip.price_usd_per_hour is not None and chip.efficiency.borrowed_from is None


def _candidate(scenario: Scenario, chosen: dict[str, Any], shape: Shape) -> Candidate:
    optional = ("quantization", "engine.scheduler.max_num_seqs")
    settings = {f"pools.{key}": value for key, value in chosen.items() if key not in optional or value is not None}
    one = kept(scenario.with_settings({**settings, "pools.replicas": 1}), "requests")
    (pool,) = one.pools
    bound, rate = bound_within_slo(pool, shape, scenario.slo)
    gpus, price = pool.deployment().gpus, pool.accelerator.price_usd_per_hour
    return Candidate(_name(chosen), one, gpus, math.inf if price is None else price * gpus, bound, rate)


def _name(chosen: dict[str, Any]) -> str:
    parts = [chosen["accelerator"], f"TP {chosen['tensor_parallel_size']}"]
    if (stages := chosen["pipeline_parallel_size"]) > 1:
        parts.append(f"PP {stages}")
    parts += [chosen["quantization"]] if chosen["quantization"] else []
    if (slots := chosen["engine.scheduler.max_num_seqs"]) is not None:
        parts.append(f"{slots} slots")
    return ", ".join([*parts, "expert parallel"] if chosen["enable_expert_parallel"] else parts)


def _ruled_out(candidate: Candidate, slo: dict[str, float]) -> str:
    """Why the closed form alone rules it out; empty when it does not."""
    bound = candidate.bound
    if bound.prompt_s > _limit(slo, "ttft"):
        return f"a prompt alone takes {bound.prompt_s:.3g} s, more than the limit on TTFT"
    if bound.decode_step_s > _limit(slo, "tpot"):
        return f"with one request at a time TPOT is {bound.decode_step_s:.3g} s, more than its limit"
    if candidate.usd_per_hour == math.inf:
        return "no price is known"
    return ""


def _limit(slo: dict[str, float], metric: str) -> float:
    return min((limit for key, limit in slo.items() if key.startswith(metric)), default=math.inf)
