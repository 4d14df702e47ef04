"""guidellm's JSON report.

Its ``time_per_output_token_ms`` is E2E / n, the first token counted: llmsim's normalised latency. Its
``inter_token_latency_ms`` is a request's mean gap: llmsim's TPOT. ``p001`` is 0.1 %, ``p01`` 1 %.
"""

from collections.abc import Mapping
from typing import Any

from llmsim.validation.measured import Measured, Statistics
from llmsim.validation.readers.common import filled, is_number, known, request_columns, statistics

TOOL = "guidellm"
FLAG = "guidellm's time_per_output_token counts the first token; its inter_token_latency is taken as TPOT"
_PERCENTILES = {"p001": "p0.1", "p01": "p1", "p05": "p5", "p999": "p99.9"}
_METRICS = {
    "ttft_s": ("time_to_first_token_ms", 1e-3),
    "tpot_s": ("inter_token_latency_ms", 1e-3),
    "normalized_latency_s": ("time_per_output_token_ms", 1e-3),
    "e2e_s": ("request_latency", 1.0),
    "prompt_tokens": ("prompt_token_count", 1.0),
    "output_tokens": ("output_token_count", 1.0),
}
_RATES = {
    "requests_per_s": "requests_per_second",
    "output_tokens_per_s": "output_tokens_per_second",
    "total_tokens_per_s": "tokens_per_second",
}


def recognises(data: Any) -> bool:
    """Whether it has benchmarks with metrics."""
    benchmarks = data.get("benchmarks") if isinstance(data, dict) else None
    return isinstance(benchmarks, list) and bool(benchmarks) and "metrics" in benchmarks[0]


def read(data: Any) -> list[Measured]:
    """A run for each benchmark of the report, successful requests only."""
    return [_benchmark(number, each) for number, each in enumerate(data["benchmarks"], start=1)]


def _benchmark(number: int, benchmark: Mapping[str, Any]) -> Measured:
    metrics = benchmark["metrics"]
    strategy = (benchmark.get("config") or {}).get("strategy") or {}
    scheduled = benchmark.get("scheduler_metrics") or {}
    made = scheduled.get("requests_made") or {}
    start, end = scheduled.get("measure_start_time"), scheduled.get("measure_end_time")
    totals = {name: _successful(metrics, key).get("mean") for name, key in _RATES.items()}
    totals |= {"completed": made.get("successful"), "failed": made.get("errored")}
    if is_number(start) and is_number(end):
        totals["duration_s"] = end - start
    rows = (benchmark.get("requests") or {}).get("successful") or []
    return Measured(
        tool=TOOL,
        label=f"benchmark {number}: {strategy.get('type_', 'unknown strategy')}",
        request_rate_per_s=strategy.get("rate") if is_number(strategy.get("rate")) else None,
        max_concurrency=strategy.get("streams") or strategy.get("max_concurrency"),
        totals=known(totals),
        statistics=filled({name: _successful(metrics, key, scale) for name, (key, scale) in _METRICS.items()}),
        requests=request_columns(_request(row) for row in rows if _request(row)),
        flags=(FLAG,),
    )


def _successful(metrics: Mapping[str, Any], key: str, scale: float = 1.0) -> Statistics:
    """The statistics of a metric over successful requests, percentiles under their usual names."""
    block = (metrics.get(key) or {}).get("successful") or {}
    percentiles = {_PERCENTILES.get(name, name): value for name, value in (block.get("percentiles") or {}).items()}
    return statistics({**block, **percentiles}, scale)


def _request(row: Mapping[str, Any]) -> dict[str, Any]:
    """A request's times and tokens; empty when the report has them under other names."""
    timings = (row.get("info") or {}).get("timings") or {}
    outputs = row.get("output_metrics") or {}
    if not is_number(row.get("request_latency")) or not is_number(row.get("time_to_first_token_ms")):
        return {}
    return {
        "arrival_s": timings.get("request_start"),
        "prompt_tokens": (row.get("input_metrics") or {}).get("text_tokens"),
        "output_tokens": outputs.get("text_tokens", outputs.get("total_tokens")),
        "ttft_s": row["time_to_first_token_ms"] / 1e3,
        "e2e_s": row["request_latency"],
    }
