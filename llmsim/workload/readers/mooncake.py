"""Mooncake traces (Qin et al., FAST 2025, github.com/kvcache-ai/Mooncake): one JSON object a line.

``timestamp`` is in milliseconds. ``hash_ids`` are the prompt's blocks of 512 tokens, the last one cut; an id
stands for a block and all that precedes it, so that equal ids are equal tokens: each is a stream.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from llmsim.workload.readers.rows import good_rows, trace_table
from llmsim.workload.table import RequestTable

_BLOCK_TOKENS = 512
_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class MooncakeFormat:
    """A JSONL file with the keys of Mooncake's traces; other keys are not read."""

    name: str = "mooncake"
    example: str = '{"timestamp": 0, "input_length": 1300, "output_length": 52, "hash_ids": [0, 1, 2]}'

    def recognises(self, first_line: str) -> bool:
        """Whether the line is a JSON object with an input length."""
        return first_line.startswith("{") and '"input_length"' in first_line

    def read(self, path: Path, limit: int | None, skip_bad_rows: bool) -> RequestTable:
        """The requests, with their shared prefixes. Raises ScenarioError for a bad row."""
        arrivals, prompts, outputs, counts, streams = [], [], [], [], []
        number: dict[int, int] = {}
        with path.open(encoding="utf-8-sig") as file:
            numbered = ((line, text) for line, text in enumerate(file, start=1) if not text.isspace())
            for row in good_rows(path, numbered, _convert, limit, skip_bad_rows):
                arrival_ns, prompt, output, ids = row
                arrivals.append(arrival_ns)
                prompts.append(prompt)
                outputs.append(output)
                counts.append(len(ids))
                streams += [number.setdefault(each, len(number)) for each in ids]
        prompt_tokens = np.array(prompts, np.int64)
        offsets = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
        tokens = np.full(len(streams), _BLOCK_TOKENS, np.int64)
        hashed = np.array(counts) > 0
        tokens[offsets[1:][hashed] - 1] = (prompt_tokens[hashed] - 1) % _BLOCK_TOKENS + 1
        return trace_table(
            path,
            np.array(arrivals, np.int64),
            prompt_tokens=prompt_tokens,
            output_tokens=np.array(outputs, np.int64),
            segments=(offsets, np.array(streams, np.int64), np.zeros_like(tokens), tokens),
        )


def _convert(text: str) -> tuple[int, int, int, list[int]]:
    """Arrival in nanoseconds, prompt and output tokens, and hash ids of one line."""
    try:
        row = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error.msg} at column {error.colno}") from None
    if not isinstance(row, dict):
        raise ValueError("is not a JSON object")
    prompt, output = _count(row, "input_length"), _count(row, "output_length")
    time_ms, ids = row.get("timestamp"), row.get("hash_ids", [])
    if not isinstance(time_ms, int | float):
        raise ValueError(f"timestamp {time_ms!r} is not a number of milliseconds")
    if not isinstance(ids, list) or any(type(each) is not int for each in ids):
        raise ValueError(f"hash_ids {str(ids)[:60]} is not a list of whole numbers")
    if ids and len(ids) != (needed := -(-prompt // _BLOCK_TOKENS)):
        raise ValueError(f"hash_ids has {len(ids)} blocks; input_length {prompt} needs {needed} of {_BLOCK_TOKENS}")
    return round(time_ms * _NS_PER_MS), prompt, output, ids


def _count(row: dict[str, Any], key: str) -> int:
    value = row.get(key)
    if type(value) is not int or value < 1:
        raise ValueError(f"{key} {value!r} is not a whole number >= 1")
    return value


MOONCAKE = MooncakeFormat()
