"""Mooncake traces (Qin et al., FAST 2025, github.com/kvcache-ai/Mooncake): one JSON object a line.

``timestamp`` is in milliseconds. ``hash_ids`` are the prompt's blocks of 512 tokens, the last one cut; an id
stands for a block and all that precedes it, so that equal ids are equal tokens: each is a stream. The dialect of
the benchmark aiperf adds sessions: a turn with a ``delay`` (ms) comes so long after the end of the turn before it.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from llmsim.workload.readers.rows import cut_to_blocks, good_rows, trace_table
from llmsim.workload.readers.sources import json_lines
from llmsim.workload.table import RequestTable

_BLOCK_TOKENS = 512
_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class MooncakeFormat:
    """A JSONL file with the keys of Mooncake's traces; other keys are not read."""

    name: str = "mooncake"
    example: str = '{"timestamp": 0, "input_length": 1300, "output_length": 52, "hash_ids": [0, 1, 2]}'
    timed: bool = True

    def recognises(self, first_line: str) -> float:
        """Whether the line is a JSON object with an input length."""
        return first_line.startswith("{") and '"input_length"' in first_line

    def read(self, path: Path, limit: int | None, skip_bad_rows: bool) -> RequestTable:
        """The requests, with their shared prefixes. Raises ScenarioError for a bad row."""
        turns, counts, streams = _Turns(), [], []
        number: dict[int, int] = {}
        rows = []
        for record in good_rows(path, json_lines(path), _checked, limit, skip_bad_rows):
            ids = record.get("hash_ids") or []
            rows.append((*turns.place(record), record["input_length"], record["output_length"]))
            counts.append(len(ids))
            streams += [number.setdefault(each, len(number)) for each in ids]
        arrival_ns, session, after, think_ns, stamped, prompt_tokens, output_tokens = np.array(rows, np.int64).T
        offsets = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
        tokens = cut_to_blocks(prompt_tokens, np.array(counts), _BLOCK_TOKENS)
        return trace_table(
            path,
            arrival_ns,
            stamped == 1,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            session=session,
            after=after,
            think_ns=think_ns,
            segments=(offsets, np.array(streams, np.int64), np.zeros_like(tokens), tokens),
        )


@dataclass(slots=True)
class _Turns:
    """Sessions so far: their numbers, and the last row of each with its arrival."""

    numbers: dict[Any, int] = field(default_factory=dict)
    last: dict[int, tuple[int, int]] = field(default_factory=dict)
    row: int = -1

    def place(self, record: dict[str, Any]) -> tuple[int, int, int, int, bool]:
        """Arrival, session, row before and think time of the next row, and whether it has a time of its own."""
        self.row += 1
        name = record.get("session_id")
        session = -1 if name is None else self.numbers.setdefault(name, len(self.numbers))
        delay_ns = round((record.get("delay") or 0) * _NS_PER_MS)
        before, begun_ns = self.last.get(session, (-1, 0))
        stamp = record.get("timestamp")
        arrival_ns = begun_ns if stamp is None else round(stamp * _NS_PER_MS)
        if session >= 0:
            self.last[session] = (self.row, arrival_ns)
        return arrival_ns, session, before, delay_ns if before >= 0 else 0, stamp is not None


def _checked(record: dict[str, Any] | str) -> dict[str, Any]:
    """The record. Raises ValueError naming the key whose value is no request's."""
    if isinstance(record, str):
        raise ValueError(record)
    for key in ("input_length", "output_length"):
        if type(value := record.get(key)) is not int or value < 1:
            raise ValueError(f"{key} {value!r} is not a whole number >= 1")
    for key in ("timestamp", "delay"):
        needed = key == "timestamp" and record.get("session_id") is None
        if not is_number(value := record.get(key)) and (needed or value is not None):
            raise ValueError(f"{key} {value!r} is not a number of milliseconds")
    ids, prompt = record.get("hash_ids") or [], record["input_length"]
    if not isinstance(ids, list) or any(type(each) is not int for each in ids):
        raise ValueError(f"hash_ids {str(ids)[:60]} is not a list of whole numbers")
    if ids and len(ids) != (needed_blocks := -(-prompt // _BLOCK_TOKENS)):
        raise ValueError(
            f"hash_ids has {len(ids)} blocks; input_length {prompt} needs {needed_blocks} of {_BLOCK_TOKENS}"
        )
    return record


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a JSON value is a finite number."""
    return type(value) in (int, float) and abs(value) < 1e15


MOONCAKE = MooncakeFormat()
