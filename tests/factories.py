"""Scenarios with defaults, so that a test states only what it is about."""

from dataclasses import fields, replace
from functools import cache
from typing import Any

from llmsim.cost import LinearCost
from llmsim.engine.sequence import Sequence
from llmsim.engine.settings import EngineSpec
from llmsim.engine.vllm import VllmScheduler
from llmsim.hardware import AcceleratorSpec, load_accelerator
from llmsim.model import ModelSpec, load_model
from llmsim.scenario import Pool, Run, Scenario
from llmsim.workload import RequestTable

SCHEDULER_SETTINGS = {field.name for field in fields(VllmScheduler)}
_ENGINE = {field.name for field in fields(EngineSpec)}
_POOL = {field.name for field in fields(Pool)}
_RUN = {field.name for field in fields(Run)}


class Requests:
    """A workload of given requests, the same for every seed."""

    def __init__(self, table: RequestTable) -> None:
        self.table = table

    def generate(self, seed: int) -> RequestTable:
        """The requests."""
        return self.table


@cache
def a_model(name: str = "llama-3.1-8b") -> ModelSpec:
    """A model of the catalogue, read once."""
    return load_model(name)


def a_windowed_model(layers: int, tokens: int) -> ModelSpec:
    """The same, some of its 32 layers attending to so many tokens only."""
    return replace(a_model(), sliding_window=tokens, sliding_window_layers=layers)


@cache
def an_accelerator(name: str = "h100-sxm") -> AcceleratorSpec:
    """An accelerator of the catalogue, read once."""
    return load_accelerator(name)


def a_table(**columns: Any) -> RequestTable:
    """Requests of 100 prompt and 10 output tokens, a second apart; a column is one value for all or a list."""
    rows = max((len(column) for column in columns.values() if hasattr(column, "__len__")), default=1)
    if "arrival_ns" not in columns:
        columns.setdefault("arrival_s", [float(row) for row in range(rows)])
    return RequestTable.build(**{"prompt_tokens": 100, "output_tokens": 10, **columns})


def a_linear_cost(**seconds: Any) -> LinearCost:
    """An iteration takes 10 ms and 0.1 ms a token; whole nanoseconds whatever its batch."""
    return LinearCost(**{"base_s": 0.01, "per_token_s": 1e-4, **seconds})


def a_pool(**given: Any) -> Pool:
    """One engine without physics. Takes the fields of a pool, of its engine and of vLLM's scheduler alike."""
    unknown = given.keys() - _POOL - _ENGINE - SCHEDULER_SETTINGS
    assert not unknown, f"no such setting: {unknown}"
    scheduler = VllmScheduler(**{name: given[name] for name in given.keys() & SCHEDULER_SETTINGS})
    engine = EngineSpec(**{"scheduler": scheduler, **{name: given[name] for name in given.keys() & _ENGINE}})
    fields_of_pool = {name: given[name] for name in given.keys() & _POOL}
    defaults = {"name": "pool", "accelerator": an_accelerator(), "cost": a_linear_cost(), "engine": engine}
    return Pool(**{**defaults, "model": a_model(), **fields_of_pool})


def a_scenario(table: RequestTable | None = None, **given: Any) -> Scenario:
    """These requests on one engine. Takes the fields of a scenario, of its run, and those of ``a_pool``.

    ``pools`` replaces the pool, ``workload`` the requests.
    """
    settings = {name: given.pop(name) for name in ("name", "seed", "router", "slo", "workload") if name in given}
    settings.setdefault("name", "test")
    settings.setdefault("workload", Requests(a_table() if table is None else table))
    run = Run(**{name: given.pop(name) for name in given.keys() & _RUN})
    pools = given.pop("pools", None)
    return Scenario(**settings, pools=pools or (a_pool(**given),), run=run)


def changed(scenario: Scenario, **fields_of_scenario: Any) -> Scenario:
    """The same scenario but for some fields; ``requests``, a table, stands for a workload of it."""
    if "requests" in fields_of_scenario:
        fields_of_scenario["workload"] = Requests(fields_of_scenario.pop("requests"))
    return replace(scenario, **fields_of_scenario)


def table_of(scenario: Scenario) -> RequestTable:
    """The requests of a scenario."""
    return scenario.workload.generate(scenario.seed)


def a_sequence(row: int = 0, **given: Any) -> Sequence:
    """A request of 100 prompt and 10 output tokens inside an engine; any of its fields can be given."""
    prompt, target = given.get("prompt_tokens", 100), given.get("target", 10)
    defaults = {"prompt_tokens": prompt, "limit_tokens": prompt + target, "target": target}
    sequence = Sequence(row=row, **defaults, stops=False, arrival_ns=0)
    for name, value in given.items():
        setattr(sequence, name, value)
    return sequence
