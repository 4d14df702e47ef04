"""Recorded conversations of agents, one JSON object a line, as guidellm and inference-perf replay ("weka").

A conversation has ``id`` and ``requests``; a request has ``t`` (seconds from the conversation's start), ``in``,
``out`` and ``hash_ids``: blocks of 64 tokens, local to the conversation, an incomplete last block left out. Entries
without lengths are events of tools; an entry with ``requests`` of its own is a sub-agent, which runs beside its
parent. Conversations have no common clock: ``rate_per_s`` says how often one starts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from llmsim.units import NS_PER_S
from llmsim.workload.readers.mooncake import is_number
from llmsim.workload.readers.rows import good_rows, trace_table
from llmsim.workload.readers.sources import json_lines
from llmsim.workload.table import RequestTable

_BLOCK_TOKENS = 64


class _Turn(NamedTuple):
    time_ns: int
    prompt: int
    output: int
    ids: list[int]
    before: int
    """Its predecessor within the conversation, -1 for the first."""


@dataclass(frozen=True, slots=True)
class WekaFormat:
    """A JSONL file of conversations."""

    name: str = "weka"
    example: str = '{"id": "c1", "requests": [{"t": 0.0, "in": 640, "out": 80, "hash_ids": [1, 2]}]}'
    timed: bool = False

    def recognises(self, first_line: str) -> float:
        """Whether the line is a JSON object with requests that have lengths."""
        return first_line.startswith("{") and '"requests"' in first_line and '"in"' in first_line

    def read(self, path: Path, limit: int | None, skip_bad_rows: bool) -> RequestTable:
        """The requests, each after the one before it; ``limit`` counts conversations."""
        rows: list[tuple[int, ...]] = []
        pieces: list[tuple[int, int, int]] = []
        counts: list[int] = []
        streams = 0
        for session, turns in enumerate(good_rows(path, json_lines(path), _turns, limit, skip_bad_rows)):
            first = len(rows)
            local: dict[int, int] = {}
            for turn in turns:
                before = turn.before + first if turn.before >= 0 else -1
                rows.append((turn.time_ns, turn.prompt, turn.output, session, before))
                known = [local.setdefault(each, streams + len(local)) for each in turn.ids]
                whole = [(stream, 0, _BLOCK_TOKENS) for stream in known]
                rest = turn.prompt - _BLOCK_TOKENS * len(whole)
                pieces += whole
                if rest:
                    pieces.append((-1, 0, rest))
                counts.append(len(whole) + bool(rest))
            streams += len(local)
        time_ns, prompts, outputs, sessions, after = np.array(rows, np.int64).T
        stream, start, tokens = np.array(pieces, np.int64).T.copy()
        private = stream < 0
        stream[private] = streams + np.arange(private.sum())
        segments = np.concatenate(([0], np.cumsum(counts, dtype=np.int64))), stream, start, tokens
        return trace_table(
            path,
            time_ns,
            np.zeros(len(time_ns), np.bool_),
            prompt_tokens=prompts,
            output_tokens=outputs,
            session=sessions,
            after=after,
            segments=segments,
        )


def _turns(record: dict[str, Any] | str) -> list[_Turn]:
    """The requests of a conversation in order of time. Raises ValueError for a bad one or when there is none."""
    if isinstance(record, str):
        raise ValueError(record)
    turns: list[_Turn] = []
    for chain in _chains(record.get("requests")):
        before = -1
        for entry in chain:
            turns.append(_turn(entry, before))
            before = len(turns) - 1
    if not turns:
        raise ValueError("has no request with in and out")
    return _by_time(turns)


def _chains(entries: Any) -> Iterator[list[dict[str, Any]]]:
    """The requests of an agent, then those of each of its sub-agents."""
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError("requests is not a list of objects")
    yield [entry for entry in entries if "in" in entry or "out" in entry]
    for entry in entries:
        if "requests" in entry:
            yield from _chains(entry["requests"])


def _turn(entry: dict[str, Any], before: int) -> _Turn:
    for key in ("in", "out"):
        if type(value := entry.get(key)) is not int or value < 1:
            raise ValueError(f"{key} {value!r} is not a whole number >= 1")
    if not is_number(time_s := entry.get("t")) or time_s < 0:
        raise ValueError(f"t {time_s!r} is not a number of seconds from the conversation's start")
    ids = entry.get("hash_ids") or []
    if not isinstance(ids, list) or any(type(each) is not int for each in ids):
        raise ValueError(f"hash_ids {str(ids)[:60]} is not a list of whole numbers")
    if len(ids) * _BLOCK_TOKENS > entry["in"]:
        raise ValueError(f"hash_ids has {len(ids)} blocks of {_BLOCK_TOKENS}; in is only {entry['in']}")
    return _Turn(round(time_s * NS_PER_S), entry["in"], entry["out"], ids, before)


def _by_time(turns: list[_Turn]) -> list[_Turn]:
    """The turns in order of time, none before the one it waits for."""
    for turn in turns:
        if turn.before >= 0 and turn.time_ns < turns[turn.before].time_ns:
            raise ValueError(f"t goes back from {turns[turn.before].time_ns / 1e9:g} to {turn.time_ns / 1e9:g} s")
    order = sorted(range(len(turns)), key=lambda index: turns[index].time_ns)
    place = {old: new for new, old in enumerate(order)}
    return [turns[old]._replace(before=place.get(turns[old].before, -1)) for old in order]


WEKA = WekaFormat()
