"""Logs of vLLM and SGLang servers: what they said at startup, and how load went on.

vLLM's V1 line comes every 10 s, V0's every 5 s; rates are averages since the line before. Prompt tokens are booked
when they are scheduled, and the hit rate is over recent queries, not over the interval. SGLang has no clock in its
lines but the log's own.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import numpy as np

from llmsim.errors import ScenarioError
from llmsim.units import GIB
from llmsim.validation.measured import Columns

SERIES = (
    "time_s",
    "prompt_tokens_per_s",
    "output_tokens_per_s",
    "running",
    "waiting",
    "kv_usage",
    "prefix_hit_rate",
)
"""Columns of ``EngineLog.series``; usages and rates of hits from 0 to 1, NaN where a line does not say."""
_NUMBER = r"([\d.]+|nan|inf)"
_FIELDS = {
    "prompt_tokens_per_s": (rf"Avg prompt throughput: {_NUMBER}", 1.0),
    "output_tokens_per_s": (rf"(?:Avg generation throughput|gen throughput \(token/s\)): {_NUMBER}", 1.0),
    "running": (r"(?:Running|#running-req): (\d+)", 1.0),
    "waiting": (r"(?:Waiting|Pending|#queue-req): (\d+)", 1.0),
    "kv_usage": (rf"GPU KV cache usage: {_NUMBER}%", 0.01),
    "prefix_hit_rate": (rf"Prefix cache hit rate: {_NUMBER}%", 0.01),
}
_SGLANG_USAGE = re.compile(rf"token usage: {_NUMBER}")
_FACTS: dict[str, tuple[str, float]] = {
    "num_gpu_blocks": (r"# (?:GPU|cuda|CUDA) blocks: (\d+)", 1.0),
    "num_cpu_blocks": (r"# CPU blocks: (\d+)", 1.0),
    "kv_tokens": (
        r"(?:GPU KV cache size: ([\d,]+) tokens|max_total_num_tokens=(\d+)|KV Cache is allocated\. #tokens: (\d+))", 1.0
    ),
    "max_concurrency": (r"Maximum concurrency for [\d,]+ tokens per request: ([\d.]+)x", 1.0),
    "max_model_len": (r"Maximum concurrency for ([\d,]+) tokens per request", 1.0),
    "kv_bytes": (r"Available KV cache memory: ([\d.]+) GiB", GIB),
    "weights_bytes": (r"(?:Model loading took|model weights take) ([\d.]+) ?GiB", GIB),
    "non_torch_bytes": (r"non_torch_memory takes ([\d.]+) ?GiB", GIB),
    "activation_bytes": (r"PyTorch activation peak memory takes ([\d.]+) ?GiB", GIB),
}  # fmt: skip
"""What is said once, at startup: key, and pattern of its number."""
_STAMPS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d"), "%Y-%m-%d %H:%M:%S"),
    (re.compile(r"(?<![\d-])\d\d-\d\d \d\d:\d\d:\d\d"), "%m-%d %H:%M:%S"),
)


@dataclass(frozen=True, slots=True)
class EngineLog:
    """What a server's log says."""

    facts: dict[str, float]
    """Said at startup: num_gpu_blocks, kv_tokens, weights_bytes ..."""
    series: Columns
    """Columns of ``SERIES``, a row for each line about load, the first at 0; empty arrays without such lines."""
    preemptions: int
    """Lines that tell of preempted requests."""
    flags: tuple[str, ...] = field(default=())


def read_log(path: Path) -> EngineLog:
    """The log of a vLLM or SGLang server. Raises ScenarioError when nothing in it is known."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return parse_log(file, str(path))
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read: {error.strerror}") from None


def parse_log(lines: Iterable[str], where: str) -> EngineLog:
    """The log's lines. Raises ScenarioError naming ``where`` when nothing in them is known."""
    facts: dict[str, float] = {}
    rows: list[dict[str, float]] = []
    stamps: list[datetime | None] = []
    preemptions, step_s = 0, 10.0
    for line in lines:
        facts |= dict(_found(line, {key: each for key, each in _FACTS.items() if key not in facts}))
        preemptions += "is preempted by" in line or "Decode out of memory" in line or "KV cache pool is full" in line
        if ("Running:" in line and "KV cache usage" in line) or "#running-req" in line:
            rows.append(_load(line))
            stamps.append(_stamp(line))
            step_s = 5.0 if "Swapped:" in line else step_s
    if not facts and not rows:
        raise ScenarioError(f"{where}: no line of a vLLM or SGLang server is in it")
    times_s, flags = _times_s(stamps, step_s)
    table = [[row.get(name, np.nan) for name in SERIES[1:]] for row in rows]
    columns = np.array(table, np.float64).reshape(-1, len(SERIES) - 1).T
    series = {"time_s": times_s, **dict(zip(SERIES[1:], columns, strict=True))}
    return EngineLog(facts, series, preemptions, flags)


def _found(text: str, patterns: dict[str, tuple[str, float]]) -> Iterator[tuple[str, float]]:
    for name, (pattern, scale) in patterns.items():
        if match := re.search(pattern, text):
            number = next(group for group in match.groups() if group is not None)
            yield name, float(number.replace(",", "")) * scale


def _load(line: str) -> dict[str, float]:
    """What one line says of load."""
    row = dict(_found(line, _FIELDS))
    if "kv_usage" not in row and (match := _SGLANG_USAGE.search(line)):
        row["kv_usage"] = float(match[1])
    new, cached = (re.search(rf"#{name}-token: (\d+)", line) for name in ("new", "cached"))
    if new and cached and (total := int(new[1]) + int(cached[1])):
        row["prefix_hit_rate"] = int(cached[1]) / total
    return row


def _stamp(line: str) -> datetime | None:
    for pattern, form in _STAMPS:
        if match := pattern.search(line):
            text = match[0].replace("T", " ")
            # Without a year a leap year is as good as any, and takes February 29th.
            return datetime.strptime(text if form[:2] == "%Y" else f"2024-{text}", f"%Y-{form.removeprefix('%Y-')}")
    return None


def _times_s(stamps: list[datetime | None], step_s: float) -> tuple[np.ndarray, tuple[str, ...]]:
    """Seconds since the first line; evenly spaced when lines have no time."""
    known = [stamp for stamp in stamps if stamp is not None]
    if len(known) < len(stamps):
        flag = f"lines without a time are taken to be {step_s:g} s apart"
        return step_s * np.arange(len(stamps), dtype=np.float64), (flag,)
    return np.array([(stamp - known[0]).total_seconds() for stamp in known]), ()
