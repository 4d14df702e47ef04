"""inference-perf: the summary of a run or a stage, and its requests one by one. Seconds throughout.

Its time_per_output_token counts events of the stream, which may be two a token: ``checked`` finds it. The client
holds requests back when num_workers * worker_max_concurrency are in flight, at any rate.
"""

from collections.abc import Mapping
from typing import Any

from llmsim.validation.measured import Measured
from llmsim.validation.readers.common import filled, is_number, known, request_columns, statistics

TOOL = "inference-perf"
_METRICS = {
    "ttft_s": "time_to_first_token",
    "tpot_s": "time_per_output_token",
    "itl_s": "inter_token_latency",
    "e2e_s": "request_latency",
    "normalized_latency_s": "normalized_time_per_output_token",
}


def recognises(data: Any) -> bool:
    """Whether it has successes and a load summary, or requests with token times."""
    if isinstance(data, dict):
        return "load_summary" in data and "successes" in data
    return isinstance(data, list) and bool(data) and isinstance(data[0], dict) and "info" in data[0]


def read(data: Any) -> list[Measured]:
    """The one run or stage."""
    if isinstance(data, list):
        return [_requests(data)]
    good, load = data["successes"], data["load_summary"]
    latency, throughput = good.get("latency") or {}, good.get("throughput") or {}
    rate = load.get("requested_rate")
    metrics = {name: statistics(latency.get(key)) for name, key in _METRICS.items()}
    metrics |= {f"{name}_tokens": statistics(good.get(f"{name}_len")) for name in ("prompt", "output")}
    achieved = load.get("achieved_rate")
    held_back = is_number(rate) and is_number(achieved) and achieved < 0.95 * rate
    flag = f"asked for {rate:g} requests/s, sent {achieved:g}: the client held requests back" if held_back else ""
    return [
        Measured(
            tool=TOOL,
            label="summary" if rate is None else f"stage of {rate:g} requests/s",
            request_rate_per_s=rate,
            totals=known(
                {
                    "completed": good.get("count"),
                    "failed": (data.get("failures") or {}).get("count"),
                    "duration_s": load.get("send_duration"),
                    "requests_per_s": throughput.get("requests_per_sec"),
                    "output_tokens_per_s": throughput.get("output_tokens_per_sec"),
                    "total_tokens_per_s": throughput.get("total_tokens_per_sec"),
                }
            ),
            statistics=filled(metrics),
            flags=(flag,) if flag else (),
        )
    ]


def _requests(rows: list[Mapping[str, Any]]) -> Measured:
    good = [row for row in rows if not row.get("error") and (row["info"].get("output_token_times"))]
    failed = len(rows) - len(good)
    return Measured(
        tool=TOOL,
        label="requests",
        totals={"completed": float(len(good)), "failed": float(failed)},
        requests=request_columns(_request(row) for row in good),
        flags=(f"{failed} requests failed or have no token times, and are left out",) if failed else (),
    )


def _request(row: Mapping[str, Any]) -> dict[str, Any]:
    info, start_s = row["info"], row["start_time"]
    return {
        "arrival_s": start_s,
        "prompt_tokens": info["input_tokens"],
        "output_tokens": info["output_tokens"],
        "ttft_s": info["output_token_times"][0] - start_s,
        "e2e_s": row["end_time"] - start_s,
    }
