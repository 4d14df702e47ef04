"""Scenarios drawn from a seed: everything an engine can meet, small enough that thousands of them run in a test.

Pools are tight or ample, prompts shorter and longer than a budget, arrivals in bursts, at random or on the very grid on
which iterations end; requests share prefixes, come in turns, stop by themselves or by length.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.random import Generator

from llmsim.cluster.router import LeastOutstanding, RoundRobin, SessionAffinity
from llmsim.cost import AnalyticCost, LinearCost
from llmsim.engine.orca import OrcaScheduler
from llmsim.engine.static import StaticScheduler
from llmsim.engine.vllm_v0 import VllmV0Scheduler
from llmsim.scenario import Pool, Scenario
from llmsim.workload import RequestTable
from tests.factories import SCHEDULER_SETTINGS, a_model, a_pool, a_scenario, a_windowed_model, changed, table_of

MOST_REQUESTS = 30
WINDOW_TOKENS = 48
WINDOW_LAYERS = ((16, 2), (24, 4), (32, 1))
"""How many of 32 layers have a window, and the groups of layers that makes."""
GRID_S = 0.01

Piece = tuple[int, int, int]


def draw_scenario(seed: int, requests: int = MOST_REQUESTS, **given: Any) -> Scenario:
    """The scenario of a seed; fewer ``requests`` are the first ones of it. ``given`` replaces what was drawn:
    settings of every pool (see ``a_pool``), ``router``, ``horizon_s``, ``warm_up_s``."""
    rng = np.random.default_rng(seed)
    settings = {**_settings(rng), **given}
    if (other := _other_scheduler(rng)) is not None and not given.keys() & SCHEDULER_SETTINGS:
        settings = {name: value for name, value in settings.items() if name not in SCHEDULER_SETTINGS}
        settings["scheduler"] = other
    run = {"horizon_s": None, "warm_up_s": 0.0}
    if rng.random() < 0.3:
        run = {"horizon_s": round(float(rng.uniform(0.2, 3.0)), 3), "warm_up_s": float(rng.choice([0.0, 0.1]))}
    routers = (RoundRobin(), LeastOutstanding(), SessionAffinity())
    run = {name: settings.pop(name, value) for name, value in run.items()}
    router = settings.pop("router", routers[rng.integers(3)])
    pools = [a_pool(**settings)]
    if rng.random() < 0.1 and "replicas" not in given:
        pools.append(replace(pools[0], name="second", num_gpu_blocks_override=4000, replicas=1))
    table = draw_table(rng, pools[0])
    return a_scenario(first(table, requests), seed=seed, pools=pools, router=router, **run)


def draw_table(rng: Generator, pool: Pool) -> RequestTable:
    """Requests that fit the pool's limits, and some that do not."""
    length = pool.deployment().ledger().max_model_len
    rows = int(rng.integers(3, MOST_REQUESTS + 1))
    arrival_ns = _arrivals(rng, rows)
    typical = max(2, min(length // 4, int(rng.choice([20, 60, 200]))))
    prompts = np.minimum(rng.geometric(1 / typical, rows), max(1, length - 2))
    prompts[rng.random(rows) < 0.03] = length + int(rng.integers(-1, 3))
    outputs = rng.geometric(1 / int(rng.choice([4, 25, 70])), rows)
    max_tokens = np.array([_limit(rng, int(output)) for output in outputs])
    prose = _Conversations(rng, prompts, np.where(max_tokens < 0, outputs, np.minimum(outputs, max_tokens)))
    return RequestTable.build(
        arrival_ns=arrival_ns[prose.first_turn],
        prompt_tokens=prose.prompt_tokens,
        output_tokens=outputs,
        max_tokens=max_tokens,
        priority=rng.integers(0, 3, rows),
        session=prose.session,
        after=prose.after,
        think_ns=rng.choice([0, 1_000_000, 50_000_000], rows),
        segments=prose.segments(),
    )


def first(table: RequestTable, requests: int) -> RequestTable:
    """The first requests of a table; predecessors and authors of a prompt stand before it."""
    return table.take(np.arange(min(requests, len(table))))


def impatient(scenario: Scenario, seed: int) -> Scenario:
    """The scenario with clients that give up, on the grid of iterations or off it, and may send again."""
    rng = np.random.default_rng((seed, 1))
    table = table_of(scenario)
    timeout_ns = rng.choice([-1, 30_000_000, 200_000_000, int(rng.integers(1, 2_000_000_000))], len(table))
    backoff_ns = rng.choice([-1, 0, 10_000_000, 70_000_001], (len(table), 2))
    return changed(scenario, requests=replace(table, timeout_ns=timeout_ns, backoff_ns=backoff_ns))


def _settings(rng: Generator) -> dict[str, Any]:
    size = int(rng.choice([2, 4, 16]))
    blocks = int(rng.choice([int(rng.integers(6, 40)), int(rng.integers(40, 120)), 2000]))
    length = (blocks - 1) * size
    longer = rng.random() < 0.15 and length > 8
    seqs = int(rng.choice([1, 2, 4, 8, 64]))
    chunked = bool(rng.random() < 0.9)
    smallest = seqs if chunked else max(seqs, 2 * length)
    window, priority = rng.random() < 0.2, rng.random() < 0.35
    livelocks = longer or priority
    model, groups = a_model(), 1
    if window:
        layers, groups = WINDOW_LAYERS[blocks % 3]
        model = a_windowed_model(layers, WINDOW_TOKENS)
    return {
        "model": model,
        "replicas": int(rng.choice([1, 1, 1, 2, 3])),
        "num_gpu_blocks_override": groups * (blocks - 1) + 1,
        "max_model_len": 2 * length if longer else "auto" if chunked and not window else length,
        "allow_long_max_model_len": bool(longer),
        "block_size": size,
        "enable_prefix_caching": bool(rng.random() < 0.6),
        "async_scheduling": bool(rng.random() < 0.6),
        "policy": "priority" if priority else "fcfs",
        "max_num_seqs": seqs,
        "max_num_batched_tokens": max(smallest, int(rng.choice([16, 64, 8192]))),
        "enable_chunked_prefill": chunked,
        "long_prefill_token_threshold": int(rng.choice([0, 0, 0, 12, 30])),
        "watermark": float(rng.choice([0.0, 0.0, 0.05, 0.2])),
        "scheduler_reserve_full_isl": bool(livelocks or rng.random() < 0.5),
        "cost": _cost(rng),
    }


def _other_scheduler(rng: Generator) -> StaticScheduler | OrcaScheduler | VllmV0Scheduler | None:
    """A scheduler that is not vLLM's V1, now and then."""
    seqs = int(rng.choice([2, 5, 64]))
    delay = float(rng.choice([0.0, 0.7, 3.0, 10.0]))
    others = (
        StaticScheduler(max_num_seqs=seqs),
        OrcaScheduler(max_num_seqs=seqs),
        VllmV0Scheduler(max_num_seqs=seqs, scheduler_delay_factor=delay),
    )
    return others[rng.choice(3, p=[0.2, 0.2, 0.6])] if rng.random() < 0.25 else None


def _cost(rng: Generator) -> LinearCost | AnalyticCost:
    if rng.random() < 0.2:
        return AnalyticCost()
    return LinearCost(
        base_s=float(rng.choice([GRID_S, 0.0037, 0.02])),
        per_token_s=float(rng.choice([0.0, 1e-5, 1.3e-5])),
        per_context_token_s=float(rng.choice([0.0, 1e-7])),
        request_s=float(rng.choice([0.0, 0.0, 0.004])),
    )


def _arrivals(rng: Generator, rows: int) -> Any:
    """At once, in bursts, at random, or on the grid of iterations of ``GRID_S``."""
    kind = rng.choice(["at once", "bursts", "random", "grid"])
    gaps_s = rng.exponential(float(rng.choice([0.02, 0.3])), rows)
    if kind == "at once":
        gaps_s[:] = 0.0
    elif kind == "bursts":
        gaps_s *= 5 * (rng.random(rows) < 0.2)
    elif kind == "grid":
        gaps_s = np.round(gaps_s / GRID_S) * GRID_S
    return np.rint(np.cumsum(gaps_s) * 1e9).astype(np.int64)


def _limit(rng: Generator, output: int) -> int:
    """A request's max_tokens: none, the very output length, longer, or shorter."""
    kind = rng.choice(["none", "equal", "longer", "shorter"], p=[0.4, 0.3, 0.2, 0.1])
    return {"none": -1, "equal": output, "longer": output + 5, "shorter": max(1, output // 2)}[str(kind)]


class _Conversations:
    """Who shares what: private prompts, prompts behind one of two system prompts, and turns of conversations, whose
    prompts are those of the turn before, its answer, and something new."""

    def __init__(self, rng: Generator, prompts: Any, answers: Any) -> None:
        rows = len(prompts)
        self.first_turn = np.arange(rows)
        self.after = np.full(rows, -1)
        self.session = np.full(rows, -1)
        self.prompt_tokens = prompts.copy()
        self._pieces: list[list[Piece]] = [[] for _ in range(rows)]
        sharing = rng.choice(["private", "system", "turns"], p=[0.3, 0.3, 0.4])
        for row in range(rows):
            if sharing == "private" or rng.random() < 0.2:
                continue
            system: Piece = (int(rng.integers(2)), 0, int(rng.choice([7, 16, 40])))
            before = row - int(rng.integers(1, 4))
            if sharing == "turns" and before >= 0 and self._pieces[before] and rng.random() < 0.8:
                self._follow(row, before, int(answers[before]), bool(rng.random() < 0.8))
            else:
                self._pieces[row] = [system]
                self.session[row] = row
            self._pieces[row].append((2 + row, 0, int(prompts[row])))
            self.prompt_tokens[row] = sum(tokens for _, _, tokens in self._pieces[row])

    def _follow(self, row: int, before: int, answer: int, waits: bool) -> None:
        """The next turn: it waits for the turn before, or names only the prompt of it (somebody else's branch)."""
        self._pieces[row] = [*self._pieces[before]]
        self.session[row] = self.session[before]
        if waits:
            self._pieces[row].append((-1 - before, 0, answer))
            self.after[row] = before
            self.first_turn[row] = self.first_turn[before]

    def segments(self) -> Any:
        """The segment arrays of a request table."""
        offsets = np.cumsum([0, *(len(pieces) for pieces in self._pieces)])
        flat = [piece for pieces in self._pieces for piece in pieces]
        return (offsets, *np.array(flat, np.int64).reshape(-1, 3).T)
