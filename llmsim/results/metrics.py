"""The figures of a run: pure functions from a ``RunRecord`` to the summary, one meaning each.

Of one request with arrival a, first scheduled s, first token f, finish e and n output tokens:
queue = s - a, ttft = f - a, tpot = (e - f) / (n - 1) for n >= 2, e2e = e - a, normalized latency = e2e / n.
TTFT is never part of TPOT or ITL. ITL is the gap between two tokens of a request, pooled over all requests.

Latencies are of requests that arrived in the measured window and finished: rejected, aborted and in-flight
requests are in no latency distribution (not even an in-flight one whose first token is out, so that all
distributions are of the same requests), and ``requests`` tells how many they were. Percentiles interpolate
linearly, as ``numpy.percentile`` does by default.
"""

from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from llmsim.results.record import Columns, RunFacts, RunRecord, Totals

SCHEMA_VERSION = 1
"""Version of the summary and of result folders: keys may be added within a version, never renamed."""

OUTCOMES = ("finished", "rejected", "aborted", "in_flight")
PERCENTILES = (50, 90, 95, 99)
BOUNDS = ("compute", "hbm", "link", "overhead", "idle")

_METRICS = ("ttft", "tpot", "itl", "e2e", "queue", "normalized_latency", "max_itl")

_MEASURED = (
    "outcome",
    "arrival_s",
    "first_scheduled_s",
    "first_token_s",
    "finish_s",
    "max_itl_s",
    "prompt_tokens",
    "output_tokens",
    "cached_tokens",
)
"""Columns that figures of the window need: of a million requests, a copy of all would take 0.3 GB."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Distribution = dict[str, float | None]
"""mean, p50, p90, p95, p99 and max; each None when the set is empty."""


class Sample(NamedTuple):
    """Values as they were measured."""

    values_s: Floats
    """Ascending."""
    counts: Ints
    """How often each occurred."""


@dataclass(slots=True)
class Measured:
    """What the summary needs of the requests, in sums that can be added up block by block."""

    outcomes: dict[str, int]
    """All requests by outcome."""
    preemptions: int
    recomputed_tokens: int
    arrived: int
    """Requests that arrived in the window, as all that follow."""
    first_arrival_s: float
    last_arrival_s: float
    """Infinite the other way round when none arrived."""
    finished: int
    good: int
    """Finished requests that each keep every limit of the SLO."""
    output_tokens: int
    """Emitted, also by requests that did not finish."""
    prefilled_tokens: int
    """Prompt tokens of requests whose prefill was completed."""
    admitted_tokens: int
    """Prompt tokens of requests that were scheduled at all."""
    cached_tokens: int
    samples: dict[str, Sample]
    """Latencies of finished requests by metric."""


def summarise(record: RunRecord) -> dict[str, Any]:
    """The summary of a run: strict JSON (no NaN, no infinity), None where there is nothing to tell.

    ``requests``, ``preemptions``, ``events`` and ``leaped_iterations`` count over the whole run, all else over the
    measured window: latencies and rates over the requests that arrived in it, ``itl_s``, ``kv_usage``, ``running``,
    ``waiting``, ``mfu``, ``mbu`` and ``bound`` over its time. MFU and MBU are shares of what all GPUs could have done
    in the window, idle time included. ``offered_request_rate_per_s`` counts the gaps between the first and the last
    arrival, not the time in which the last ones are served; None with less than two moments of arrival.
    """
    return summarise_measured(
        record.facts,
        record.totals,
        measure(record.requests, record.facts.window_start_s, record.facts.window_end_s, record.facts.slo),
    )


def summarise_measured(facts: RunFacts, totals: Totals, measured: Measured) -> dict[str, Any]:
    """The summary from sums: see ``summarise``."""
    samples = measured.samples | {"itl": Sample(totals.itl_values_s, totals.itl_counts)}
    distributions = {f"{name}_s": weighted_distribution(*samples[name]) for name in _METRICS}
    summary = {
        "schema_version": SCHEMA_VERSION,
        "scenario": facts.scenario,
        "seed": facts.seed,
        "gpus": facts.gpus,
        "duration_s": facts.window_end_s - facts.window_start_s,
        "requests": {"total": sum(measured.outcomes.values())} | measured.outcomes,
        **_rates(measured, facts),
        **distributions,
        "preemptions": measured.preemptions,
        "recomputed_tokens": measured.recomputed_tokens,
        "cached_prompt_share": _ratio(measured.cached_tokens, measured.admitted_tokens),
        **_use(totals, facts),
        "slo": judge_slo(facts.slo, distributions, measured.arrived, measured.finished),
        "events": facts.events,
        "leaped_iterations": facts.leaped_iterations,
    }
    return {key: _strict(value) for key, value in summary.items()}


def measure(requests: Columns, window_start_s: float, window_end_s: float, slo: dict[str, float]) -> Measured:
    """The sums of a request table, whole or a block of it."""
    arrival_s = requests["arrival_s"]
    inside = (arrival_s >= window_start_s) & (arrival_s <= window_end_s)
    measured = _where({name: requests[name] for name in _MEASURED}, inside)
    finished = _where(measured, measured["outcome"] == "finished")
    values = latencies(finished)
    values["normalized_latency"] = values["e2e"] / finished["output_tokens"]
    values["max_itl"] = finished["max_itl_s"]
    return Measured(
        outcomes={outcome: int(np.count_nonzero(requests["outcome"] == outcome)) for outcome in OUTCOMES},
        preemptions=int(requests["preemptions"].sum()),
        recomputed_tokens=int(requests["recomputed_tokens"].sum()),
        arrived=len(measured["arrival_s"]),
        first_arrival_s=float(np.min(measured["arrival_s"], initial=np.inf)),
        last_arrival_s=float(np.max(measured["arrival_s"], initial=-np.inf)),
        finished=len(finished["arrival_s"]),
        good=int(np.count_nonzero(within_slo(slo, finished))),
        output_tokens=int(measured["output_tokens"].sum()),
        prefilled_tokens=int(measured["prompt_tokens"][~np.isnan(measured["first_token_s"])].sum()),
        admitted_tokens=int(measured["prompt_tokens"][~np.isnan(measured["first_scheduled_s"])].sum()),
        cached_tokens=int(measured["cached_tokens"].sum()),
        samples={name: _sample(column) for name, column in values.items()},
    )


def add_up(sums: Measured, block: Measured) -> Measured:
    """The counts of two blocks of requests together; the samples of the first."""
    counts = [field.name for field in fields(Measured) if field.type is int]
    added = {name: getattr(sums, name) + getattr(block, name) for name in counts}
    added["first_arrival_s"] = min(sums.first_arrival_s, block.first_arrival_s)
    added["last_arrival_s"] = max(sums.last_arrival_s, block.last_arrival_s)
    outcomes = {name: count + block.outcomes[name] for name, count in sums.outcomes.items()}
    return replace(sums, outcomes=outcomes, **added)


def latencies(finished: Columns) -> dict[str, Floats]:
    """Seconds of each finished request by metric (``ttft``, ``tpot``, ``e2e``, ``queue``), shape ``(n,)``.

    ``tpot`` is NaN for a request with one output token.
    """
    gaps = finished["output_tokens"] - 1.0
    decode_s = finished["finish_s"] - finished["first_token_s"]
    return {
        "ttft": finished["first_token_s"] - finished["arrival_s"],
        "tpot": np.divide(decode_s, gaps, out=np.full(len(gaps), np.nan), where=gaps > 0),
        "e2e": finished["finish_s"] - finished["arrival_s"],
        "queue": finished["first_scheduled_s"] - finished["arrival_s"],
    }


def weighted_distribution(values: Floats, counts: Ints) -> Distribution:
    """Mean, percentiles and maximum of a sample in which each of the ascending ``values`` occurs ``counts`` times."""
    if not counts.sum():
        return dict.fromkeys(("mean", *(f"p{p}" for p in PERCENTILES), "max"))
    found = weighted_percentiles(values, counts, np.array(PERCENTILES))
    return {
        "mean": float((values * counts).sum() / counts.sum()),
        **{f"p{p}": float(value) for p, value in zip(PERCENTILES, found, strict=True)},
        "max": float(values[counts > 0][-1]),
    }


def weighted_percentiles(values: Floats, counts: Ints, percentiles: NDArray[Any]) -> Floats:
    """What ``numpy.percentile(numpy.repeat(values, counts), percentiles)`` gives, to the last bit.

    The sample is not expanded. ``values`` ascend and at least one count is positive. Linear interpolation
    between order statistics is definition 7 of Hyndman and Fan, "Sample Quantiles in Statistical Packages"
    (1996).
    """
    last = np.cumsum(counts)
    position = (last[-1] - 1) * (percentiles / 100)
    below = np.floor(position)
    lower = values[np.searchsorted(last, below, side="right")]
    upper = values[np.searchsorted(last, np.minimum(below + 1, last[-1] - 1), side="right")]
    part, gap = position - below, upper - lower
    # From the nearer end, as numpy does, so that the last bit agrees.
    return np.asarray(np.where(part < 0.5, lower + gap * part, upper - gap * (1 - part)), np.float64)


def judge_slo(
    limits: dict[str, float], distributions: dict[str, Distribution], measured: int, finished: int
) -> dict[str, Any]:
    """Whether each limit was kept, and whether all were; None without limits or without measured requests.

    Keys of ``limits`` are ``<ttft|tpot|itl|e2e>_<mean|p50|p90|p95|p99>_s``, their values seconds. A limit
    without a value is missed when no measured request finished. It is kept when some did: only ``tpot`` and
    ``itl`` have no value then, every answer having been a single token.
    """
    targets = {}
    for key, limit in limits.items():
        metric, statistic = _split(key)
        value = distributions[f"{metric}_s"][statistic]
        met = (finished > 0 if value is None else value <= limit) if measured else None
        targets[key] = {"limit_s": limit, "value_s": value, "met": met}
    judged = [target["met"] for target in targets.values()]
    return {"met": all(judged) if judged and measured else None, "targets": targets}


def within_slo(limits: dict[str, float], finished: Columns) -> NDArray[np.bool_]:
    """Which finished requests keep every limit by themselves, shape ``(n,)``: goodput counts them.

    A limit on any statistic of ``ttft``, ``tpot`` or ``e2e`` holds for the request's own value. A limit on
    the mean ITL holds for its tpot (its mean gap), one on a percentile of ITL for its longest gap. An
    answer of one token has a tpot and an ITL of 0, as in ``vllm bench serve --goodput``.
    """
    values = latencies(finished)
    good = np.ones(len(finished["finish_s"]), bool)
    for key, limit in limits.items():
        metric, statistic = _split(key)
        if metric == "itl":
            value = values["tpot"] if statistic == "mean" else finished["max_itl_s"]
        else:
            value = values[metric]
        good &= np.nan_to_num(value, nan=0.0) <= limit
    return good


def _split(key: str) -> tuple[str, str]:
    metric, statistic, _ = key.split("_")
    return metric, statistic


def _where(columns: Columns, rows: NDArray[np.bool_]) -> Columns:
    return {name: column[rows] for name, column in columns.items()}


def _sample(values: Floats) -> Sample:
    values = np.sort(values[~np.isnan(values)])
    return Sample(values, np.ones(len(values), np.int64))


def _rates(measured: Measured, facts: RunFacts) -> dict[str, float | None]:
    """Per second of the window, and what a token cost."""
    duration_s = facts.window_end_s - facts.window_start_s
    span_s = measured.last_arrival_s - measured.first_arrival_s
    good = measured.good if facts.slo else None
    tokens = measured.output_tokens
    cost = None
    if facts.cost_usd_per_hour is not None and tokens:
        cost = facts.cost_usd_per_hour / 3600 * duration_s / tokens * 1e6
    return {
        "offered_request_rate_per_s": (measured.arrived - 1) / span_s if span_s > 0 else None,
        "request_throughput_per_s": _ratio(measured.finished, duration_s),
        "output_throughput_tokens_per_s": _ratio(tokens, duration_s),
        "total_throughput_tokens_per_s": _ratio(measured.prefilled_tokens + tokens, duration_s),
        "goodput_per_s": None if good is None else _ratio(good, duration_s),
        "slo_attainment": None if good is None or not measured.arrived else good / measured.arrived,
        "cost_usd_per_hour": facts.cost_usd_per_hour,
        "cost_usd_per_million_output_tokens": cost,
    }


def _use(totals: Totals, facts: RunFacts) -> dict[str, Any]:
    duration_s = facts.window_end_s - facts.window_start_s
    replica_s = sum(totals.bound_s.values())
    bound = {name: _ratio(totals.bound_s.get(name, 0.0), replica_s) for name in BOUNDS}
    return {
        "kv_usage": {"mean": totals.kv_usage_mean, "max": totals.kv_usage_max},
        "running": {"mean": totals.running_mean, "max": totals.running_max},
        "waiting": {"mean": totals.waiting_mean, "max": totals.waiting_max},
        "mfu": _ratio(totals.flop, facts.peak_flop_per_s * duration_s),
        "mbu": _ratio(totals.hbm_bytes, facts.peak_hbm_bytes_per_s * duration_s),
        "bound": bound if replica_s else bound | {"idle": 1.0},
    }


def _ratio(part: float, whole: float) -> float:
    """0 of nothing is 0: a window without length has no throughput."""
    return part / whole if whole > 0 else 0.0


def _strict(value: Any) -> Any:
    """The value as strict JSON: plain Python numbers, None for NaN and infinities."""
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value
