"""llmsim's own trace format, which holds a whole request table: what ``llmsim trace convert`` writes.

Three columns are needed: seconds on any clock, and token counts. ``after`` is the number of the row, from 0, whose
end a request waits for, or -1. ``segments`` is a prompt as ``stream:start:tokens`` pieces separated by spaces; a
negative stream ``-1 - r`` is what row r generated.
"""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from llmsim.errors import ScenarioError
from llmsim.units import NS_PER_S
from llmsim.workload.readers.columns import Column, ColumnFormat
from llmsim.workload.readers.fields import SECONDS, TOKENS, Labels, Pieces, Whole
from llmsim.workload.readers.text import is_parquet
from llmsim.workload.table import Ints, RequestTable

PLAIN = ColumnFormat(
    name="csv",
    columns=(
        Column("arrival_s", "arrival_ns", SECONDS),
        Column("prompt_tokens", "prompt_tokens", TOKENS),
        Column("output_tokens", "output_tokens", TOKENS),
        Column("max_tokens", "max_tokens", Whole(), needed=False),
        Column("priority", "priority", Whole(), needed=False),
        Column("client", "client", Labels(), needed=False),
        Column("session", "session", Whole(), needed=False),
        Column("after", "after", Whole(), needed=False),
        Column("think_s", "think_ns", SECONDS, needed=False),
        Column("segments", "segments", Pieces(), needed=False),
    ),
)


def write_trace(table: RequestTable, path: Path) -> None:
    """Write a request table as CSV, or as Parquet when the name ends in .parquet or .pq; it reads back the same.

    Columns that say nothing (no limits, one client, no sessions ...) are left out. Times are texts of nine decimals
    in both, exact to the nanosecond. Raises ScenarioError when the file cannot be written.
    """
    import pandas as pd

    columns = {name: column for name, column, silent in _columns(table) if not np.all(column == silent)}
    frame = pd.DataFrame(columns)
    try:
        if is_parquet(path):
            frame.to_parquet(path, index=False)
        else:
            frame.to_csv(path, index=False)
    except OSError as error:
        raise ScenarioError(f"{path}: the trace cannot be written: {error.strerror or error}") from None


def _columns(table: RequestTable) -> Iterator[tuple[str, np.ndarray, object]]:
    """Names and texts or numbers of all columns, and the value of each that says nothing."""
    yield "arrival_s", _seconds(table.arrival_ns), None
    yield "prompt_tokens", table.prompt_tokens, None
    yield "output_tokens", table.output_tokens, None
    yield "max_tokens", table.max_tokens, -1
    yield "priority", table.priority, 0
    yield "client", np.array(table.client_names, object)[table.client], "default"
    yield "session", table.session, -1
    yield "after", table.after, -1
    yield "think_s", _seconds(table.think_ns), "0.000000000"
    yield "segments", _pieces(table), ""


def _seconds(time_ns: Ints) -> np.ndarray:
    whole, rest = np.divmod(time_ns, NS_PER_S)
    return np.array([f"{second}.{nanosecond:09}" for second, nanosecond in zip(whole, rest, strict=True)], object)


def _pieces(table: RequestTable) -> np.ndarray:
    """The segments of each row as text."""
    texts = np.full(len(table), "", object)
    if len(table.segment_offsets) == 1:
        return texts
    columns = (table.segment_stream, table.segment_start, table.segment_tokens)
    pieces = [":".join(map(str, piece)) for piece in zip(*(column.tolist() for column in columns), strict=True)]
    edges = table.segment_offsets.tolist()
    for row, (first, end) in enumerate(pairwise(edges)):
        texts[row] = " ".join(pieces[first:end])
    return texts
