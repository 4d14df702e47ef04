"""KV blocks of models in which some layers have a sliding window."""

from typing import Any

import numpy as np
import pytest
from numpy.random import Generator

from llmsim.deployment.memory import fullest_groups
from llmsim.engine.decisions import Decisions
from llmsim.scenario import Scenario
from llmsim.simulation import simulate
from llmsim.workload import RequestTable
from tests.equivalence.compare import different_columns
from tests.equivalence.drawn import WINDOW_LAYERS
from tests.factories import a_linear_cost, a_model, a_pool, a_scenario, a_table, a_windowed_model

WINDOW, BLOCK = 32, 4
AMPLE = {"num_gpu_blocks_override": 200_000, "max_model_len": 4000, "enable_prefix_caching": False}


class Tables:
    """Blocks as the real scheduler keeps them: a table of each request for each group, in which nothing stands in place
    of what nobody attends to any more. A request scheduled first lets go of that, then takes what it lacks."""

    def __init__(self, full: int, window: int, window_tokens: int, size: int) -> None:
        self.kinds = [None] * full + [window_tokens] * window
        self.size = size
        self.computed: dict[int, int] = {}
        self.tables: dict[int, list[list[bool]]] = {}

    def schedule(self, row: int, tokens: int) -> None:
        """So many tokens more of a request."""
        computed = self.computed.get(row, 0)
        tables = self.tables.setdefault(row, [[] for _ in self.kinds])
        for table, window in zip(tables, self.kinds, strict=True):
            if window is not None:
                for number in range(len(table)):
                    last_token = (number + 1) * self.size - 1
                    table[number] = table[number] and last_token > computed - window
            while len(table) * self.size < computed + tokens:
                table.append(True)
        self.computed[row] = computed + tokens

    def free(self, row: int) -> None:
        """A request ends or is preempted."""
        self.computed.pop(row, None)
        self.tables.pop(row, None)

    def held(self) -> int:
        """Blocks in use."""
        return sum(sum(table) for tables in self.tables.values() for table in tables)


def replayed(scenario: Scenario) -> tuple[list[int], list[int]]:
    """Blocks held after each scheduling: as tables of the logged decisions have them, and as logged."""
    logs: list[Decisions] = []
    simulate(scenario, decisions=logs)
    pool, steps = scenario.pools[0], logs[0].steps
    groups = fullest_groups(pool.deployment())
    tables = Tables(round(groups.full), round(groups.window), pool.model.sliding_window or 0, pool.engine.block_size)
    expected, logged, landed = [], [], 0
    for step in steps:
        while landed < len(steps) and steps[landed]["gpu_end"] <= step["t"] and landed < len(expected):
            for row, _ in steps[landed]["finished"]:
                tables.free(row)
            landed += 1
        for row in step["preempted"]:
            tables.free(row)
        for row, tokens in step["sched"]:
            tables.schedule(row, tokens)
        expected.append(tables.held())
        logged.append(pool.num_gpu_blocks_override - 1 - step["free_blocks"])
    return expected, logged


@pytest.mark.parametrize("layers", [layers for layers, _ in WINDOW_LAYERS])
@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize("scarce", [True, False])
def test_blocks_are_those_of_tables_with_holes(layers: int, asynchronous: bool, scarce: bool) -> None:
    """With chunks, with blocks to spare and with preemptions."""
    rng = np.random.default_rng(layers)
    table = a_table(
        arrival_s=np.sort(rng.uniform(0, 1, 40)).tolist(),
        prompt_tokens=rng.integers(1, 150, 40).tolist(),
        output_tokens=rng.integers(1, 200, 40).tolist(),
        max_tokens=rng.choice([-1, 100, 1], 40, p=[0.4, 0.4, 0.2]).tolist(),
    )
    blocks = {16: 280, 24: 560, 32: 45}[layers] if scarce else 20_000
    given: dict[str, Any] = {"num_gpu_blocks_override": blocks, "max_num_batched_tokens": 64, "block_size": BLOCK}
    given |= {
        "max_num_seqs": 64,
        "model": a_windowed_model(layers, WINDOW),
        "async_scheduling": asynchronous,
        "max_model_len": 400,
    }
    scenario = a_scenario(table, pools=[a_pool(**given, cost=a_linear_cost(), enable_prefix_caching=False)])
    expected, logged = replayed(scenario)
    assert expected == logged
    record = simulate(scenario).record
    assert record.iterations["kv_blocks"].tolist() == logged
    assert bool(record.requests["preemptions"].any()) == (scarce and layers < 32)


def test_a_long_answer_holds_its_window_only() -> None:
    """8 layers that keep 10 + 999 tokens in 253 blocks, and a window of 32 tokens that lies across 9 blocks of 4."""
    table = a_table(prompt_tokens=10, output_tokens=1000)
    pool = a_pool(model=a_windowed_model(24, WINDOW), block_size=BLOCK, **AMPLE)
    held = simulate(a_scenario(table, pools=[pool])).record.iterations["kv_blocks"]
    assert held[-1] == held.max() == 253 + 3 * 9
    deployment = pool.deployment()
    assert fullest_groups(deployment).in_decode(deployment, 1009) == 253 + 3 * 9


def test_blocks_that_others_may_find_are_left_behind_together() -> None:
    """40 tokens are shared, in 10 blocks of 4: the first two are left when the prompt is computed, the others are kept
    until token 71 is computed, which sees the tokens 40 to 71."""
    table = a_table(
        arrival_s=[0.0, 100.0],
        prompt_tokens=41,
        output_tokens=60,
        segments=([0, 2, 4], [0, 1, 0, 2], [0] * 4, [40, 1] * 2),
    )
    pool = a_pool(
        model=a_windowed_model(32, WINDOW),
        block_size=BLOCK,
        **{**AMPLE, "enable_prefix_caching": True, "async_scheduling": False},
    )
    record = simulate(a_scenario(table, pools=[pool])).record
    held = record.iterations["kv_blocks"][record.iterations["start_s"] < 100]
    tokens = 41 + np.arange(60)
    kept = np.where(tokens <= 71, 2, (tokens - WINDOW) // BLOCK)
    kept[0] = 0
    assert held.tolist() == (-(-tokens // BLOCK) - kept).tolist()
    assert record.requests["cached_tokens"].tolist() == [0, 40]


def conversations(rng: Generator) -> RequestTable:
    """Turns that repeat all that was said, behind a system prompt that all conversations share."""
    pieces: list[list[tuple[int, int, int]]] = []
    after: list[int] = []
    outputs = rng.integers(1, 150, 30)
    for row in range(30):
        before = row - 3 if row >= 3 and rng.random() < 0.7 else -1
        said = [*pieces[before], (-1 - before, 0, int(outputs[before]))] if before >= 0 else [(0, 0, 90)]
        pieces.append([*said, (row + 1, 0, int(rng.integers(1, 120)))])
        after.append(before)
    return RequestTable.build(
        arrival_s=np.sort(rng.uniform(0, 4, 30)),
        prompt_tokens=[sum(tokens for _, _, tokens in mine) for mine in pieces],
        output_tokens=outputs,
        session=[row % 3 for row in range(30)],
        after=after,
        segments=(
            np.cumsum([0, *(len(mine) for mine in pieces)]),
            *np.array([piece for mine in pieces for piece in mine]).T,
        ),
    )


@pytest.mark.parametrize("layers", [layers for layers, _ in WINDOW_LAYERS])
def test_windows_hide_no_prefix_while_nothing_is_evicted(layers: int) -> None:
    """What was released or left behind is found as if all layers kept everything, and nothing else is different."""
    given: dict[str, Any] = {**AMPLE, "enable_prefix_caching": True, "block_size": BLOCK, "max_num_batched_tokens": 64}
    for seed in range(10):
        table = conversations(np.random.default_rng(seed))
        given["async_scheduling"] = bool(seed % 2)
        keeping, windowed = (
            simulate(a_scenario(table, pools=[a_pool(**given, model=model)])).record.requests
            for model in (a_model(), a_windowed_model(layers, WINDOW))
        )
        assert different_columns(keeping, windowed) == [], f"seed {seed}"
        assert np.mean(keeping["cached_tokens"] >= 88) > 0.5
