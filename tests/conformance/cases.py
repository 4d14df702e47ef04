"""Recorded decisions of vLLM's real scheduler, as scenarios of llmsim and as what must come out.

The schema of a case is described in ``tests/conformance/README.md``.
"""

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from llmsim.cost import LinearCost
from llmsim.engine.settings import EngineSpec
from llmsim.engine.vllm import VllmScheduler
from llmsim.scenario import Pool, Run, Scenario
from llmsim.workload import RequestTable

IGNORES_EOS = 1 << 40
"""Output tokens of a request that no end of sequence ends."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A workload made of recorded requests."""

    table: RequestTable

    def generate(self, seed: int) -> RequestTable:
        """The same requests for every seed."""
        return self.table


def read_case(path: Path) -> dict[str, Any]:
    """One recorded case."""
    data = path.read_bytes()
    case: dict[str, Any] = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    return case


def case_paths(folder: Path) -> list[Path]:
    """All cases of a folder, in order of name."""
    return sorted([*folder.glob("*.json"), *folder.glob("*.json.gz")])


def ids_by_row(case: dict[str, Any]) -> list[str]:
    """Request ids in row order: by arrival, those of one instant in the order of the file."""
    arrivals = _arrivals(case)
    return sorted(arrivals, key=lambda each: arrivals[each])


def as_scenario(case: dict[str, Any], *, leap: bool) -> Scenario:
    """The case as a scenario: its engine, its linear step time, its requests."""
    config, time = case["config"], case["step_time"]
    scheduler = VllmScheduler(
        max_num_seqs=config["max_num_seqs"],
        max_num_batched_tokens=config["max_num_batched_tokens"],
        enable_chunked_prefill=config["enable_chunked_prefill"],
        long_prefill_token_threshold=config["long_prefill_token_threshold"],
        policy=config["policy"],
        watermark=config["watermark"],
        scheduler_reserve_full_isl=config["scheduler_reserve_full_isl"],
        async_scheduling=config["async_scheduling"],
    )
    pool = Pool(
        name="recorded",
        model="llama-3.1-8b",
        accelerator="h100-sxm",
        max_model_len=config["max_model_len"],
        allow_long_max_model_len=True,
        num_gpu_blocks_override=config["num_gpu_blocks"],
        cost=LinearCost(
            base_s=time["a_ns"] / 1e9,
            per_token_s=time["b_ns_per_token"] / 1e9,
            per_context_token_s=time["c_ns_per_ctx_token"] / 1e9,
        ),
        engine=EngineSpec(
            scheduler=scheduler,
            enable_prefix_caching=config["enable_prefix_caching"],
            block_size=config["block_size"],
        ),
    )
    return Scenario(name=case["name"], pools=(pool,), workload=Recorded(_table(case)), run=Run(leap=leap))


def _arrivals(case: dict[str, Any]) -> dict[str, int]:
    """Arrival of each request in ns; arrivals by step number happen when that step was scheduled."""
    if case["config"]["arrivals"] == "time":
        return {each["id"]: each["arrival"] for each in case["requests"]}
    scheduled = {name: step["t"] for step in case["steps"] for name in step["arrived"]}
    return {each["id"]: scheduled[each["id"]] for each in case["requests"]}


def _table(case: dict[str, Any]) -> RequestTable:
    ids = ids_by_row(case)
    requests = {each["id"]: each for each in case["requests"]}
    rows = [requests[name] for name in ids]
    arrivals = _arrivals(case)
    streams = _Streams(ids)
    pieces = [(streams.number(name), start, n) for row in rows for name, start, n in row["prompt"]]
    offsets = np.cumsum([0, *(len(row["prompt"]) for row in rows)])
    prompts = [sum(n for _, _, n in row["prompt"]) for row in rows]
    room = case["config"]["max_model_len"]
    return RequestTable.build(
        arrival_ns=[arrivals[name] for name in ids],
        prompt_tokens=prompts,
        output_tokens=[IGNORES_EOS if row.get("ignore_eos") else row["output_len"] for row in rows],
        max_tokens=[
            max(1, room - prompt) if row.get("max_tokens") is None else row["max_tokens"]
            for row, prompt in zip(rows, prompts, strict=True)
        ],
        priority=[row.get("priority", 0) for row in rows],
        segments=(offsets, *np.array(pieces, np.int64).reshape(-1, 3).T),
    )


class _Streams:
    """Numbers for the streams of a case: ``out:<id>`` is what the request of that id generates."""

    def __init__(self, ids: list[str]) -> None:
        self._rows = {name: row for row, name in enumerate(ids)}
        self._inputs: dict[str, int] = {}

    def number(self, name: str) -> int:
        if name.startswith("out:"):
            return -1 - self._rows[name.removeprefix("out:")]
        return self._inputs.setdefault(name, len(self._inputs))
