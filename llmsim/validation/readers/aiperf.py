"""genai-perf and aiperf: the aggregate JSON, and aiperf's JSON lines of one request each.

What both call inter-token latency is a request's mean gap: llmsim's TPOT. aiperf's pooled gaps are its
``inter_chunk_latency``.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from llmsim.validation.measured import Measured, Statistics, statistics_of
from llmsim.validation.readers.common import filled, known, request_columns, statistics

TOOL = "aiperf"
FLAG = "inter_token_latency of genai-perf and aiperf is a request's mean gap: taken as TPOT"
_METRICS = {
    "ttft_s": "time_to_first_token",
    "tpot_s": "inter_token_latency",
    "e2e_s": "request_latency",
    "prompt_tokens": "input_sequence_length",
    "output_tokens": "output_sequence_length",
}
_TOTALS = {
    "requests_per_s": "request_throughput",
    "output_tokens_per_s": "output_token_throughput",
    "total_tokens_per_s": "total_token_throughput",
    "goodput_per_s": "goodput",
    "completed": "request_count",
    "duration_s": "benchmark_duration",
}
_SECONDS = {"ms": 1e-3, "us": 1e-6, "ns": 1e-9, "s": 1.0, "sec": 1.0}


def recognises(data: Any) -> bool:
    """Whether it has the tools' aggregate metrics, or requests with metadata and metrics."""
    if isinstance(data, dict):
        latency = data.get("request_latency")
        return (isinstance(latency, dict) and "unit" in latency) or _is_request(data)
    return isinstance(data, list) and bool(data) and _is_request(data[0])


def read(data: Any) -> list[Measured]:
    """The one run."""
    if isinstance(data, dict) and not _is_request(data):
        return [_aggregate(data)]
    return [_raw(data if isinstance(data, list) else [data])]


def _is_request(data: Any) -> bool:
    return isinstance(data, dict) and isinstance(data.get("metadata"), dict) and isinstance(data.get("metrics"), dict)


def _aggregate(data: Mapping[str, Any]) -> Measured:
    settings = data.get("input_config") or {}
    models = settings.get("model_names") or (settings.get("endpoint") or {}).get("model_names") or []
    metrics = {name: _statistics(data.get(key)) for name, key in _METRICS.items()}
    return Measured(
        tool=TOOL,
        label="aggregate",
        model=", ".join(map(str, models)) if isinstance(models, list) else str(models),
        totals=known({name: (data.get(key) or {}).get("avg") for name, key in _TOTALS.items()}),
        statistics=filled(metrics),
        flags=(FLAG,),
    )


def _statistics(block: Mapping[str, Any] | None) -> Statistics:
    return statistics(block, _SECONDS.get((block or {}).get("unit", ""), 1.0))


def _raw(records: list[Mapping[str, Any]]) -> Measured:
    good = [record for record in records if not record.get("error") and not record["metadata"].get("was_cancelled")]
    columns = request_columns(_request(record) for record in good)
    gaps = [gap for record in good for gap in _value(record, "inter_chunk_latency") or []]
    failed = len(records) - len(good)
    totals = {"completed": float(len(good)), "failed": float(failed)}
    if columns is not None and np.isfinite(columns["arrival_s"]).all():
        totals["duration_s"] = float(np.max(columns["arrival_s"] + columns["e2e_s"]))
    return Measured(
        tool=TOOL,
        label="requests",
        totals=totals,
        statistics=filled({"itl_s": statistics_of(np.array(gaps, np.float64))}),
        requests=columns,
        flags=(f"{failed} requests failed or were cancelled, and are left out",) if failed else (),
    )


def _request(record: Mapping[str, Any]) -> dict[str, Any]:
    start_ns = record["metadata"].get("request_start_ns")
    return {
        "arrival_s": None if start_ns is None else start_ns / 1e9,
        "prompt_tokens": _value(record, "input_sequence_length"),
        "output_tokens": _value(record, "output_sequence_length"),
        "ttft_s": _value(record, "time_to_first_token"),
        "e2e_s": _value(record, "request_latency"),
    }


def _value(record: Mapping[str, Any], name: str) -> Any:
    """A metric of a request, times in seconds; a list stays one."""
    metric = record["metrics"].get(name)
    if metric is None:
        return None
    scale = _SECONDS.get(metric.get("unit", ""), 1.0)
    value = metric["value"]
    return [each * scale for each in value] if isinstance(value, list) else value * scale
