"""Logs of OpenAI-style gateways (LiteLLM, Envoy, one's own): one JSON object a line, under no common standard.

The names below are those in use; a key within a key is written with a dot. ``created`` and other times of logging
are the response's end, so that the arrival is the end less the duration, unless a start is logged. Times are
numbers since 1970, in whatever unit makes a date of them, or ISO texts.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from llmsim.units import NS_PER_S
from llmsim.workload.readers.fields import TIMESTAMP
from llmsim.workload.readers.mooncake import is_number
from llmsim.workload.readers.prefixes import cached_segments, session_links
from llmsim.workload.readers.rows import good_rows, trace_table, warn_of_disorder
from llmsim.workload.readers.sources import json_lines, value_at
from llmsim.workload.table import RequestTable

STARTS = ("startTime", "start_time", "request_start", "started_at", "request_time")
ENDS = ("endTime", "end_time", "completed_at", "finished_at", "created", "created_at", "timestamp", "time", "ts")
DURATIONS = {
    **dict.fromkeys(("duration_ms", "latency_ms", "response_time_ms", "total_time_ms", "elapsed_ms"), 1e6),
    **dict.fromkeys(("duration_s", "latency_s", "duration", "latency", "response_time", "elapsed"), 1e9),
}
"""Nanoseconds in the unit of each."""
PROMPTS = ("usage.prompt_tokens", "usage.input_tokens", "prompt_tokens", "input_tokens")
OUTPUTS = ("usage.completion_tokens", "usage.output_tokens", "completion_tokens", "output_tokens")
CACHED = (
    "usage.prompt_tokens_details.cached_tokens",
    "usage.input_tokens_details.cached_tokens",
    "prompt_tokens_details.cached_tokens",
    "cached_tokens",
)
SESSIONS = ("session_id", "conversation_id", "metadata.session_id", "trace_id")
FAILED = ("failure", "failed", "error", "cancelled")


class _Call(NamedTuple):
    start_ns: int
    end_ns: int
    """The start when the duration is not known."""
    prompt: int
    output: int
    cached: int
    max_tokens: int
    session: Any
    model: str


@dataclass(frozen=True, slots=True)
class GatewayFormat:
    """A JSONL file of calls with their usage."""

    name: str = "gateway"
    example: str = '{"created": 1730000000, "model": "m", "usage": {"prompt_tokens": 812, "completion_tokens": 64}}'
    timed: bool = True

    def recognises(self, first_line: str) -> float:
        """Whether the line is a JSON object that counts completion tokens or has a usage."""
        return first_line.startswith("{") and any(
            f'"{key}"' in first_line for key in ("usage", "completion_tokens", "output_tokens")
        )

    def read(self, path: Path, limit: int | None, skip_bad_rows: bool) -> RequestTable:
        """The calls, a client for each model, with prompts that share what was cached.

        A call of a session waits for the one before it if it did so in the log. Raises ScenarioError for a call
        that failed, or that lacks a time or a number of tokens.
        """
        calls = list(good_rows(path, json_lines(path), _call, limit, skip_bad_rows))
        start_ns, end_ns, prompts, outputs, cached, limits = np.array([call[:6] for call in calls], np.int64).T
        warn_of_disorder(path, start_ns)
        order = np.argsort(start_ns, kind="stable")
        models: dict[str, int] = {}
        sessions: dict[Any, int] = {None: -1}
        client = np.array([models.setdefault(call.model, len(models)) for call in calls])[order]
        session = np.array([sessions.setdefault(call.session, len(sessions) - 1) for call in calls])[order]
        start_ns, end_ns, prompts, outputs, cached = (
            column[order] for column in (start_ns, end_ns, prompts, outputs, cached)
        )
        before = session_links(session)
        waited = (before >= 0) & (end_ns[before] > start_ns[before]) & (end_ns[before] <= start_ns)
        group = np.where(session >= 0, session, -1 - client)
        return trace_table(
            path,
            start_ns,
            prompt_tokens=prompts,
            output_tokens=outputs,
            max_tokens=limits[order],
            client=client,
            session=session,
            after=np.where(waited, before, -1),
            segments=cached_segments(prompts, outputs, cached, group) if cached.any() else None,
            client_names=tuple(models),
        )


def _call(record: dict[str, Any] | str) -> _Call:
    if isinstance(record, str):
        raise ValueError(record)
    status = record.get("status", record.get("status_code"))
    if status in FAILED or (is_number(status) and status >= 400) or record.get("error"):
        raise ValueError(f"failed: status {status!r}, error {str(record.get('error'))[:60]!r}")
    start_ns, end_ns = _times(record)
    limit = _first(record, ("max_tokens", "max_completion_tokens", "request.max_tokens"))
    return _Call(
        start_ns,
        end_ns,
        _tokens(record, PROMPTS),
        _tokens(record, OUTPUTS),
        _tokens(record, CACHED, least=0) if _first(record, CACHED) is not None else 0,
        limit if type(limit) is int and limit > 0 else -1,
        _first(record, SESSIONS),
        str(record.get("model") or "default"),
    )


def _times(record: dict[str, Any]) -> tuple[int, int]:
    """Start and end; both the same moment when there is but one and no duration."""
    start, end = _first(record, STARTS), _first(record, ENDS)
    duration_ns = next(
        (round(value * unit) for key, unit in DURATIONS.items() if is_number(value := value_at(record, key))), None
    )
    if start is not None:
        start_ns = _moment(start)
        return start_ns, start_ns + duration_ns if duration_ns else start_ns if end is None else _moment(end)
    if end is None:
        raise ValueError(f"has no time; looked for {', '.join((*STARTS, *ENDS))}")
    end_ns = _moment(end)
    return end_ns - (duration_ns or 0), end_ns


def _moment(value: Any) -> int:
    """Nanoseconds since 1970 of a number since then in s, ms, us or ns, or of a text."""
    if isinstance(value, str):
        return TIMESTAMP.start().one(value)
    if type(value) not in (int, float) or not 0 <= value < 1e19:
        raise ValueError(f"time {value!r} is not a number since 1970, nor a text like 2023-11-16 18:15:46Z")
    unit_ns = next((unit for limit, unit in ((1e11, NS_PER_S), (1e14, 10**6), (1e17, 10**3)) if value < limit), 1)
    return round(value * unit_ns) if type(value) is float else int(value) * unit_ns


def _first(record: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((value for name in names if (value := value_at(record, name)) is not None), None)


def _tokens(record: dict[str, Any], names: tuple[str, ...], least: int = 1) -> int:
    value = _first(record, names)
    if type(value) is not int or value < least:
        raise ValueError(f"{names[0]} {value!r} is not a whole number >= {least}")
    return value


GATEWAY = GatewayFormat()
