"""Workloads replayed from a trace file, in any of the formats of ``readers``."""

from dataclasses import replace
from pathlib import Path
from typing import Literal, Self

import numpy as np
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt, field_validator, model_validator

from llmsim.errors import ScenarioError
from llmsim.specification import specification
from llmsim.units import NS_PER_S
from llmsim.workload.arrivals import Arrivals, Poisson, first_arrivals_s
from llmsim.workload.random_streams import stream
from llmsim.workload.readers import FORMATS, ColumnMapping, TraceFormat, format_of, read_trace
from llmsim.workload.readers.sharegpt import ShareGptFormat, tokenizer_count
from llmsim.workload.stamps import spread
from llmsim.workload.table import Ints, RequestTable


@specification
class TraceWorkload:
    """Recorded requests, replayed: the first arrives at 0 and the others at their distance from it."""

    kind: Literal["trace"] = "trace"
    path: Path
    """The file; it may be packed (.gz, .zst, .bz2), or Parquet if it has columns."""
    format: str = "auto"
    """Format of the file; "auto": by its first line."""
    columns: ColumnMapping | None = None
    """Which column holds what, in a file of one's own."""
    tokenizer: Path | None = None
    """A ``tokenizer.json`` that counts the tokens of a trace of texts; None: by words."""
    requests: PositiveInt | None = None
    """Only the first so many rows of the file; conversations count as one row where one line holds one."""
    start_s: NonNegativeFloat = 0.0
    """Leaves out what arrives in this time from the trace's beginning."""
    duration_s: PositiveFloat | None = None
    """Only what arrives in this time after ``start_s``."""
    rate_scale: PositiveFloat = 1.0
    """Multiplies the arrival rate: 2 replays the trace twice as fast."""
    rate_per_s: PositiveFloat | None = None
    """Forgets the recorded times and draws new ones at this rate, in the trace's order; of sessions it is the rate
    at which they begin. Needed where a trace has no times."""
    arrivals: Arrivals = Poisson()
    """The law of the new times, with ``rate_per_s``."""
    timestamp_resolution_s: NonNegativeFloat | None = None
    """Arrivals are spread evenly at random over this time after their stamp; 0: not at all; None: over the
    step of the grid of stamps, if most requests share theirs with another, and otherwise not."""
    on_bad_rows: Literal["error", "skip"] = "error"
    """What happens at a row that is no request, for example one that generated no token."""

    @field_validator("format")
    @classmethod
    def _known(cls, name: str) -> str:
        allowed = ("auto", *(each.name for each in FORMATS))
        if name not in allowed:
            raise ValueError(f"unknown format '{name}'; allowed: {', '.join(allowed)}")
        return name

    @model_validator(mode="after")
    def _one_clock(self) -> Self:
        if self.rate_per_s is not None and self.rate_scale != 1:
            raise ValueError("give either rate_scale or rate_per_s")
        return self

    def located(self, folder: Path) -> Self:
        """The same with its paths, which start at ``folder``, as seen from the working directory.

        Raises ValueError when there is no such file.
        """
        path, tokenizer = folder / self.path, self.tokenizer and folder / self.tokenizer
        for key, value in (("path", path), ("tokenizer", tokenizer)):
            if value is not None and not value.is_file():
                raise ValueError(f"{key} = '{value}': there is no such file")
        return replace(self, path=path, tokenizer=tokenizer)

    def generate(self, seed: int) -> RequestTable:
        """The requests, in order of arrival.

        Raises ScenarioError naming line, value and what is allowed. Warns of skipped and of unsorted rows.
        """
        form = self.file_format()
        table = read_trace(self.path, form, self.requests, skip_bad_rows=self.on_bad_rows == "skip")
        if self.start_s or self.duration_s is not None:
            table = self._window(table)
        if self.rate_per_s is not None:
            return self._at_new_times(table, seed)
        if not form.timed:
            raise ScenarioError(f"{self.path}: the trace has no arrival times; rate_per_s is needed")
        return self._at_its_times(table, seed)

    def file_format(self) -> TraceFormat:
        """The format the file is read in. Raises ScenarioError when there is none."""
        if self.columns is not None:
            return self.columns.format()
        form = format_of(self.path, self.format)
        if self.tokenizer is not None:
            if not isinstance(form, ShareGptFormat):
                raise ScenarioError(f"{self.path}: the trace has no texts for a tokenizer; its format is {form.name}")
            form = replace(form, count=tokenizer_count(self.tokenizer))
        return form

    def _window(self, table: RequestTable) -> RequestTable:
        """What arrives in the window; of a session that began before it, the rest, which waits for nothing."""
        start_ns = round(self.start_s * NS_PER_S)
        end_ns = np.inf if self.duration_s is None else start_ns + self.duration_s * NS_PER_S
        inside = (table.arrival_ns >= start_ns) & (table.arrival_ns < end_ns)
        if not inside.any():
            last_s = table.arrival_ns[-1] / NS_PER_S
            raise ScenarioError(f"{self.path}: nothing arrives in the window; the last request is at {last_s:g} s")
        before = table.after.clip(min=0)
        kept = replace(table, after=np.where(inside[before], table.after, -1))
        return kept.take(np.flatnonzero(inside))

    def _at_its_times(self, table: RequestTable, seed: int) -> RequestTable:
        arrival_ns = table.arrival_ns
        rng, given_s = stream(seed, "workload/trace/arrivals"), self.timestamp_resolution_s
        arrival_ns = spread(arrival_ns, None if given_s is None else round(given_s * NS_PER_S), rng)
        arrival_ns = arrival_ns - arrival_ns[0]
        if self.rate_scale != 1:
            arrival_ns = np.rint(arrival_ns / self.rate_scale).astype(np.int64)
        return replace(table, arrival_ns=arrival_ns)

    def _at_new_times(self, table: RequestTable, seed: int) -> RequestTable:
        """New times for what waits for nothing; the rest keep their distance to the first of their chain."""
        first = _first_of_chain(table.after)
        begins = np.flatnonzero(table.after < 0)
        rng = stream(seed, "workload/trace/arrivals")
        start_ns = np.zeros(len(table), np.int64)
        start_ns[begins] = np.rint(first_arrivals_s(self.arrivals, self.rate_per_s or 1.0, len(begins), rng) * NS_PER_S)
        arrival_ns = start_ns[first] + table.arrival_ns - table.arrival_ns[first]
        moved = replace(table, arrival_ns=arrival_ns)
        return moved.take(np.argsort(arrival_ns, kind="stable"))


def _first_of_chain(after: Ints) -> Ints:
    """For each row the row at the beginning of the chain of those it comes after."""
    source = np.where(after < 0, np.arange(len(after)), after)
    while not np.array_equal(source[source], source):
        source = source[source]
    return source
