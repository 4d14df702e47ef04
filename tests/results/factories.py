"""Small hand-made records of runs, with defaults, for tests of everything that reads a record.

The story of ``a_record()``: one replica on one GPU, a window of 0.5 s. Request 0 (1,000 prompt tokens, 3
output tokens) arrives at 0.0 and request 1 (500, 2) at 0.05; request 2 does not fit and is rejected at 0.1.
Iteration 0 (0.0-0.1) prefills request 0, iteration 1 (0.1-0.2) prefills request 1 beside a decode of
request 0, iteration 2 (0.2-0.22) decodes both, and both finish.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from llmsim.results.record import (
    BOUND_COLUMNS,
    ITERATION_COLUMNS,
    PREEMPTION_COLUMNS,
    REQUEST_COLUMNS,
    Columns,
    RunFacts,
    RunRecord,
    Totals,
)

NAN = float("nan")
Row = dict[str, Any]
TEXT = {"client", "pool", "outcome", "reason", "stopped_by", "bound"}
REAL = {"flop", "hbm_bytes", "link_bytes", *BOUND_COLUMNS}


def a_request(request_id: int = 0, **changes: Any) -> Row:
    """A finished request that waited for nothing: first token after 0.1 s, then one every 0.05 s (3 in
    all)."""
    row: Row = {
        "request_id": request_id,
        "client": "default",
        "session": -1,
        "pool": "chat",
        "replica": 0,
        "arrival_s": 0.0,
        "queued_s": 0.0,
        "first_scheduled_s": 0.0,
        "first_token_s": 0.1,
        "finish_s": 0.2,
        "prompt_tokens": 1000,
        "output_tokens": 3,
        "cached_tokens": 0,
        "preemptions": 0,
        "recomputed_tokens": 0,
        "max_itl_s": 0.05,
        "attempts": 1,
        "priority": 0,
        "outcome": "finished",
        "reason": "stop",
    }
    return _changed(row, changes)


def a_rejected_request(request_id: int = 0, **changes: Any) -> Row:
    """A request that was refused on arrival."""
    row = a_request(request_id, pool="", replica=-1, output_tokens=0, outcome="rejected", reason="too long")
    times = ("queued_s", "first_scheduled_s", "first_token_s", "finish_s", "max_itl_s")
    return _changed(row | dict.fromkeys(times, NAN), changes)


def an_iteration(iteration: int = 0, **changes: Any) -> Row:
    """One decode of one sequence, 0.1 s long, starting at 0.0, bound by HBM."""
    row: Row = {
        "replica": 0,
        "iteration": iteration,
        "start_s": 0.0,
        "end_s": 0.1,
        "prefill_tokens": 0,
        "decode_tokens": 1,
        "sampled": 1,
        "context_tokens": 1000,
        "running": 1,
        "waiting": 0,
        "kv_blocks": 63,
        "preempted": 0,
        "cached_tokens": 0,
        "stopped_by": "empty",
        "flop": 1.6e10,
        "hbm_bytes": 1.6e10,
        "link_bytes": 0.0,
        "bound": "hbm",
        "compute_s": 0.0,
        "hbm_s": 0.0,
        "link_s": 0.0,
        "overhead_s": 0.0,
    }
    row = _changed(row, changes)
    if not changes.keys() & set(BOUND_COLUMNS):
        row[f"{row['bound']}_s"] = row["end_s"] - row["start_s"]
    return row


def a_preemption(request_id: int = 0, **changes: Any) -> Row:
    """Blocks lost at 0.1 s, admitted again at 0.2 s, the next token at 0.3 s."""
    row: Row = {
        "request_id": request_id,
        "replica": 0,
        "preempted_s": 0.1,
        "resumed_s": 0.2,
        "caught_up_s": 0.3,
    }
    return _changed(row, changes)


def some_facts(**changes: Any) -> RunFacts:
    """One H100-like GPU at 4 USD an hour, a window of 0.5 s, no SLO."""
    facts = RunFacts(
        scenario="two chats",
        scenario_text='{"name":"two chats","seed":7}',
        seed=7,
        gpus=1,
        replicas=1,
        window_start_s=0.0,
        window_end_s=0.5,
        peak_flop_per_s=1e15,
        peak_hbm_bytes_per_s=4e12,
        cost_usd_per_hour=4.0,
        slo={},
        record="full",
        events=9,
        leaped_iterations=0,
        pools=[{"name": "chat", "model": "llama-3.1-8b", "accelerator": "h100-sxm", "replicas": 1}],
        notes=["max_model_len is 2048: what the model allows"],
    )
    return replace(facts, **changes)


def some_totals(**changes: Any) -> Totals:
    """The sums of the story of ``a_record()``, with a KV pool of 200 blocks."""
    totals = Totals(
        flop=5e13,
        hbm_bytes=2e11,
        link_bytes=0.0,
        bound_s={"compute": 0.2, "hbm": 0.02, "link": 0.0, "overhead": 0.0, "idle": 0.28},
        itl_values_s=np.array([0.02, 0.1]),
        itl_counts=np.array([2, 1]),
        kv_usage_mean=(0.1 * 63 + 0.12 * 95) / 0.5 / 200,
        kv_usage_max=95 / 200,
        running_mean=(0.1 * 1 + 0.12 * 2) / 0.5,
        running_max=2,
        waiting_mean=0.1,
        waiting_max=1,
    )
    return replace(totals, **changes)


def a_record(
    requests: list[Row] | None = None,
    iterations: list[Row] | None = None,
    preemptions: list[Row] | None = None,
    totals: Totals | None = None,
    facts: RunFacts | None = None,
) -> RunRecord:
    """A record of the given rows; without them, of the story above."""
    return RunRecord(
        facts=facts or some_facts(),
        totals=totals or some_totals(),
        requests=columns(REQUEST_COLUMNS, the_requests() if requests is None else requests),
        iterations=columns(
            (*ITERATION_COLUMNS, *BOUND_COLUMNS), the_iterations() if iterations is None else iterations
        ),
        preemptions=columns(PREEMPTION_COLUMNS, preemptions or []),
    )


def the_requests() -> list[Row]:
    """The three requests of the story."""
    return [
        a_request(0, finish_s=0.22, max_itl_s=0.1),
        a_request(
            1,
            arrival_s=0.05,
            queued_s=0.05,
            first_scheduled_s=0.1,
            first_token_s=0.2,
            finish_s=0.22,
            prompt_tokens=500,
            output_tokens=2,
            max_itl_s=0.02,
            reason="length",
        ),
        a_rejected_request(2, arrival_s=0.1, prompt_tokens=5000),
    ]


def the_iterations() -> list[Row]:
    """The three iterations of the story."""
    return [
        an_iteration(0, prefill_tokens=1000, decode_tokens=0, bound="compute", flop=3e13, stopped_by="empty"),
        an_iteration(
            1,
            start_s=0.1,
            end_s=0.2,
            prefill_tokens=500,
            decode_tokens=1,
            sampled=2,
            context_tokens=1501,
            running=2,
            kv_blocks=95,
            bound="compute",
            flop=1.6e13,
        ),
        an_iteration(
            2,
            start_s=0.2,
            end_s=0.22,
            decode_tokens=2,
            sampled=2,
            context_tokens=1503,
            running=2,
            kv_blocks=95,
            bound="hbm",
        ),
    ]


def columns(names: Any, rows: list[Row]) -> Columns:
    """Rows as columns of the dtypes a recorder writes: object for text, float64 for seconds, int64
    otherwise."""
    return {name: np.array([row[name] for row in rows], _dtype(name)) for name in names}


def _dtype(name: str) -> Any:
    if name in TEXT:
        return object
    return np.float64 if name.endswith("_s") or name in REAL else np.int64


def _changed(row: Row, changes: Row) -> Row:
    unknown = changes.keys() - row.keys()
    assert not unknown, f"no such column: {unknown}"
    return row | changes
