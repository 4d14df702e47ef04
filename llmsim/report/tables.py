"""The numbers of a run as text, row by row, which the HTML report and the console share."""

import json
from collections.abc import Iterator
from typing import Any

from llmsim.results.record import RunFacts
from llmsim.results.results import Results
from llmsim.units import GIB, format_bytes, format_duration, format_percent, format_usd
from llmsim.validation.stated import stated_sentence

METRIC_NAMES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e": "E2E", "queue": "Queue"}
STATISTICS = ("mean", "p50", "p90", "p95", "p99", "max")
LATENCIES = {
    "ttft_s": ("TTFT", "from sending to the first token"),
    "tpot_s": ("TPOT", "mean gap between a request's tokens, the first left out"),
    "itl_s": ("ITL", "every gap between two tokens, pooled"),
    "max_itl_s": ("Longest ITL", "the longest gap a request saw"),
    "e2e_s": ("E2E", "from sending to the last token"),
    "queue_s": ("Queue", "from sending to the first computed token"),
}
"""Rows of the latency table: key of the summary, name, meaning."""
UNKNOWN = "–"

Rows = list[tuple[str, str]]


def latency_rows(summary: dict[str, Any]) -> list[tuple[str, str, list[str]]]:
    """A row a metric: its name, its meaning, and the text of each of ``STATISTICS``."""
    return [
        (name, meaning, [duration(summary[key][statistic]) for statistic in STATISTICS])
        for key, (name, meaning) in LATENCIES.items()
        if key in summary
    ]


def throughput_rows(summary: dict[str, Any]) -> Rows:
    """Rates over the measured window, and how the requests ended."""
    counts = summary["requests"]
    ended = ", ".join(
        f"{counts[key]:,} {key.replace('_', ' ')}"
        for key in ("finished", "rejected", "aborted", "in_flight")
        if counts[key]
    )
    rows = [
        ("Requests", f"{counts['total']:,}" + (f" ({ended})" if ended else "")),
        ("Measured", duration(summary["duration_s"])),
        ("Offered", f"{number(summary.get('offered_request_rate_per_s'))} requests/s"),
        ("Finished", f"{number(summary['request_throughput_per_s'])} requests/s"),
        ("Goodput", f"{number(summary['goodput_per_s'])} requests/s within every limit"),
        ("Output", f"{number(summary['output_throughput_tokens_per_s'])} tokens/s"),
        ("Prompt and output", f"{number(summary['total_throughput_tokens_per_s'])} tokens/s"),
    ]
    return [row for row in rows if not row[1].startswith(UNKNOWN)]


def use_rows(summary: dict[str, Any]) -> Rows:
    """How full and how busy the hardware was."""
    kv, running, waiting = summary["kv_usage"], summary["running"], summary["waiting"]
    return [
        ("KV cache held", f"{percent(kv['mean'])} mean, {percent(kv['max'])} max"),
        ("Running", f"{number(running['mean'])} mean, {number(running['max'])} max"),
        ("Waiting", f"{number(waiting['mean'])} mean, {number(waiting['max'])} max"),
        ("Preemptions", f"{summary['preemptions']:,}"),
        ("Prompt from prefix cache", percent(summary.get("cached_prompt_share"))),
        ("MFU / MBU", f"{percent(summary['mfu'])} / {percent(summary['mbu'])}"),
    ]


def cost_rows(summary: dict[str, Any]) -> Rows:
    """GPUs and money."""
    hourly, million = summary["cost_usd_per_hour"], summary["cost_usd_per_million_output_tokens"]
    return [
        ("GPUs", f"{summary['gpus']:,}"),
        ("Cost", "price not known" if hourly is None else f"{money(hourly)} an hour"),
        ("Per 1M output tokens", money(million)),
    ]


def pool_rows(facts: RunFacts) -> Rows:
    """What served: model, accelerator, parallel sizes and memory of each pool."""
    several = len(facts.pools) > 1
    return [row for pool in facts.pools for row in _pool_rows(pool, several)]


def run_rows(facts: RunFacts) -> Rows:
    """What was asked of it: the workload, the SLO, the measured window, the seed."""
    limits = [f"{slo_name(key)} ≤ {format_duration(limit)}" for key, limit in facts.slo.items()]
    return [
        ("Workload", _workload(facts.scenario_text)),
        ("SLO", ", ".join(limits) or "none stated"),
        ("Measured", f"{duration(facts.window_start_s)} to {duration(facts.window_end_s)}"),
        ("Seed", str(facts.seed)),
    ]


def slo_name(key: str) -> str:
    """A key of the SLO as people say it: ``ttft_p99_s`` is ``TTFT p99``."""
    metric, statistic, _ = key.split("_")
    return f"{METRIC_NAMES.get(metric, metric)} {statistic}"


def _pool_rows(pool: dict[str, Any], several: bool) -> Iterator[tuple[str, str]]:
    if several:
        yield "Pool", str(pool.get("name", UNKNOWN))
    yield "Model", str(pool.get("model", UNKNOWN))
    sizes = {"TP": "tensor_parallel_size", "PP": "pipeline_parallel_size", "DP": "data_parallel_size"}
    parallel = [f"{short} {pool[key]}" for short, key in sizes.items() if pool.get(key, 1) > 1]
    replicas = pool.get("replicas", 1)
    laid = [f"{replicas} replica{'s' if replicas != 1 else ''}", *parallel]
    yield "Accelerator", f"{pool.get('accelerator', UNKNOWN)}, {', '.join(laid)}"
    if "num_gpu_blocks" in pool:
        blocks, size = pool["num_gpu_blocks"], pool.get("block_size")
        tokens = f" = {blocks * size:,} tokens" if size else ""
        yield "KV pool", f"{blocks:,} blocks{tokens} a replica"
    if "max_model_len" in pool:
        yield "max_model_len", f"{pool['max_model_len']:,} tokens"
    if "weight_dtype" in pool:
        yield "Known errors", stated_sentence(pool["accelerator"], pool["weight_dtype"], pool["experts"])


def _workload(scenario_text: str) -> str:
    try:
        workload = json.loads(scenario_text).get("workload") or {}
    except (ValueError, AttributeError):
        return UNKNOWN
    named = [str(workload[key]) for key in ("kind", "name", "path") if isinstance(workload.get(key), str)]
    plain = [
        f"{key} {value:,}" if isinstance(value, int | float) else f"{key} {value}"
        for key, value in sorted(workload.items())
        if key not in ("kind", "name", "path") and isinstance(value, int | float | str) and not isinstance(value, bool)
    ]
    return ", ".join([" ".join(named), *plain] if named else plain) or UNKNOWN


def memory_rows(pool: dict[str, Any]) -> list[tuple[str, float]]:
    """The memory ledger of a pool: what each part takes, in bytes; empty when the result has none."""
    found: list[tuple[str, float]] = []
    for key, value in pool.items():
        if isinstance(value, dict):
            found += memory_rows(value)
        elif key.endswith("_bytes") and isinstance(value, int | float):
            found.append((key.removesuffix("_bytes").replace("_", " "), value))
    return found


def duration(seconds: float | None) -> str:
    """Seconds for people, or a dash when there are none."""
    return UNKNOWN if seconds is None else "0 s" if seconds == 0 else format_duration(seconds)


def number(value: float | None) -> str:
    """Three significant digits, thousands apart, or a dash."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def percent(share: float | None) -> str:
    """A share as per cent, one digit below ten, or a dash."""
    return UNKNOWN if share is None else format_percent(share)


def money(amount: float | None) -> str:
    """US dollars, or a dash when a price is not known."""
    return UNKNOWN if amount is None else format_usd(amount)


def gibibytes(count: float) -> str:
    """Bytes in one unit for a column: GiB, unless there is less than a hundredth of it."""
    return f"{count / GIB:,.2f} GiB" if count >= GIB / 100 else format_bytes(count)


def headline_numbers(results: Results) -> list[tuple[str, str, str]]:
    """The tiles on top of a report: name, value, what qualifies it."""
    summary = results.summary()
    ttft, tpot, kv, waiting = (summary[key] for key in ("ttft_s", "tpot_s", "kv_usage", "waiting"))
    counts, hourly = summary["requests"], summary["cost_usd_per_hour"]
    output, everything = (summary[f"{key}_throughput_tokens_per_s"] for key in ("output", "total"))
    finished = f"{counts['finished']:,} of {counts['total']:,} finished"
    price = "price not known" if hourly is None else f"{money(hourly)} an hour"
    return [
        ("Output tokens/s", number(output), f"{number(everything)} with prompts"),
        ("Requests/s", number(summary["request_throughput_per_s"]), finished),
        ("TTFT p99", duration(ttft["p99"]), f"p50 {duration(ttft['p50'])}"),
        ("TPOT p99", duration(tpot["p99"]), f"p50 {duration(tpot['p50'])}"),
        ("KV cache held", percent(kv["mean"]), f"mean; max {percent(kv['max'])}"),
        ("Preemptions", f"{summary['preemptions']:,}", f"waiting: max {number(waiting['max'])}"),
        ("MFU", percent(summary["mfu"]), "of peak FLOP/s"),
        ("MBU", percent(summary["mbu"]), "of peak HBM bandwidth"),
        ("GPUs", f"{summary['gpus']:,}", price),
        ("Per 1M output tokens", money(summary["cost_usd_per_million_output_tokens"]), "at the run's rate"),
    ]
