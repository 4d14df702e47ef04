"""What a run leaves behind: the arrays everything about it is computed from. Written by the recorder, read by all else.

``RunRecord`` is the whole of it. Columns are NumPy arrays of one length, in seconds and tokens, under the names that
``Results.requests`` and ``Results.iterations`` show as DataFrames.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Columns = dict[str, NDArray[Any]]

REQUEST_COLUMNS: dict[str, str] = {
    "request_id": "row of the request table",
    "client": "name of the client that sent it",
    "session": "number of its session, -1 without one",
    "pool": "name of the pool that served it ('' if none)",
    "replica": "number of the replica that served it, -1 if none",
    "arrival_s": "when it was first sent",
    "queued_s": "when it reached the replica's queue (NaN if never)",
    "first_scheduled_s": "start of the first iteration that computed any of it (NaN if never)",
    "first_token_s": "end of the iteration that sampled its first token (NaN if never)",
    "finish_s": "end of the iteration that sampled its last token (NaN unless finished)",
    "prompt_tokens": "tokens of its prompt",
    "output_tokens": "tokens it has emitted",
    "cached_tokens": "prompt tokens found in the prefix cache at its first admission",
    "preemptions": "how often it lost its KV blocks",
    "recomputed_tokens": "tokens computed again after preemptions",
    "max_itl_s": "longest gap between two of its tokens (NaN with fewer than two)",
    "attempts": "how often it was sent; but for arrival_s all is of the last time",
    "priority": "smaller is more important",
    "outcome": "finished | rejected | aborted | in_flight",
    "reason": "finished: stop | length; otherwise why, in a word or two",
}
"""Columns of the request table of a result, in order, with their meaning."""

ITERATION_COLUMNS: dict[str, str] = {
    "replica": "number of the replica",
    "iteration": "number of the iteration on its replica, from 0",
    "start_s": "start of the iteration",
    "end_s": "end of the iteration: its tokens are out",
    "prefill_tokens": "prompt tokens computed (recomputed ones included)",
    "decode_tokens": "sequences that computed one token",
    "sampled": "tokens emitted",
    "context_tokens": "sum over its sequences of the context after the iteration",
    "running": "requests in the running list after scheduling",
    "waiting": "requests in the waiting queue after scheduling",
    "kv_blocks": "KV blocks held after scheduling",
    "preempted": "requests preempted by its scheduling",
    "cached_tokens": "tokens that requests admitted by its scheduling found in the prefix cache",
    "stopped_by": "why admission stopped: empty | slots | kv | budget | preempted | delay",
    "flop": "floating-point operations, per GPU",
    "hbm_bytes": "bytes read and written in HBM, per GPU",
    "link_bytes": "bytes sent over links, per GPU",
    "bound": "what took the largest share of its time: compute | hbm | link | overhead",
}
"""Columns of the iteration table of a result, in order, with their meaning."""

BOUND_COLUMNS = ("compute_s", "hbm_s", "link_s", "overhead_s")
"""Four further columns of ``RunRecord.iterations``, not shown in ``Results.iterations``: the parts of an iteration's
duration spent on each resource. They sum to ``end_s - start_s`` of a synchronous iteration."""

PREEMPTION_COLUMNS = ("request_id", "replica", "preempted_s", "resumed_s", "caught_up_s")
"""Columns of ``RunRecord.preemptions``, a row a preemption: when the blocks were lost, when the request was admitted
again, when it sampled its next token (NaN: never)."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the measured window of a run (after warm-up), known at every record level."""

    flop: float
    """Over all GPUs."""
    hbm_bytes: float
    link_bytes: float
    bound_s: dict[str, float]
    """Replica seconds by what they were spent on: compute, hbm, link, overhead, idle."""
    itl_values_s: NDArray[np.float64]
    """Distinct inter-token latencies, ascending; exact at level ``full``, centres of bins otherwise."""
    itl_counts: NDArray[np.int64]
    """How often each occurred."""
    kv_usage_mean: float
    """Share of KV blocks held, time-weighted, averaged over replicas."""
    kv_usage_max: float
    running_mean: float
    """Requests running, time-weighted, summed over replicas."""
    running_max: int
    waiting_mean: float
    waiting_max: int


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What is true of a run as a whole."""

    scenario: str
    """Name of the scenario."""
    scenario_text: str
    """The scenario as canonical JSON: keys sorted, every default filled in."""
    seed: int
    gpus: int
    replicas: int
    window_start_s: float
    """Start of the measured window: the end of the warm-up."""
    window_end_s: float
    """End of the measured window: the horizon, or the last event."""
    peak_flop_per_s: float
    """Sum over all GPUs of the dense peak of the dtype they compute in."""
    peak_hbm_bytes_per_s: float
    cost_usd_per_hour: float | None
    """Price of all GPUs; None when a price is not known."""
    slo: dict[str, float]
    """Limits in seconds by key, such as ``ttft_p99_s``."""
    record: str
    """Record level: full | requests | summary."""
    events: int
    """Events the simulator processed."""
    leaped_iterations: int
    """Iterations that shared an event with another one."""
    pools: list[dict[str, Any]]
    """One a pool: name, model, accelerator, replicas, parallel sizes, num_gpu_blocks, max_model_len and the memory
    ledger; JSON values."""
    notes: list[str]
    """Assumptions a reader should know: what was borrowed, lowered or left out."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """All that a run leaves behind."""

    facts: RunFacts
    totals: Totals
    requests: Columns
    """Columns of ``REQUEST_COLUMNS``; empty arrays at level ``summary``. Text columns have dtype object."""
    iterations: Columns
    """Columns of ``ITERATION_COLUMNS`` and ``BOUND_COLUMNS``, ordered by start and replica; empty unless ``full``."""
    preemptions: Columns
    """Columns of ``PREEMPTION_COLUMNS``."""
