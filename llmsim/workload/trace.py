"""Workloads replayed from a trace file, in any of the formats of ``readers``."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt, field_validator

from llmsim.specification import specification
from llmsim.units import NS_PER_S
from llmsim.workload.random_streams import stream
from llmsim.workload.readers import FORMATS, read_trace
from llmsim.workload.table import Ints, RequestTable


@specification
class TraceWorkload:
    """Recorded requests, replayed: the first arrives at 0 and the others at their distance from it."""

    kind: Literal["trace"] = "trace"
    path: Path
    format: str = "auto"
    """Format of the file; "auto": by its first line."""
    requests: PositiveInt | None = None
    """Only the first so many rows of the file."""
    rate_scale: PositiveFloat = 1.0
    """Multiplies the arrival rate: 2 replays the trace twice as fast."""
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

    def generate(self, seed: int) -> RequestTable:
        """The requests, in order of arrival.

        Raises ScenarioError naming line, value and what is allowed. Warns of skipped and of unsorted rows.
        """
        table = read_trace(self.path, self.format, self.requests, skip_bad_rows=self.on_bad_rows == "skip")
        arrival_ns = table.arrival_ns
        resolution_ns = (
            _shared_grid_ns(arrival_ns)
            if self.timestamp_resolution_s is None
            else round(self.timestamp_resolution_s * NS_PER_S)
        )
        if resolution_ns:
            rng = stream(seed, "workload/trace/arrivals")
            arrival_ns = np.sort(arrival_ns + rng.integers(resolution_ns, size=len(arrival_ns)))
        arrival_ns = arrival_ns - arrival_ns[0]
        if self.rate_scale != 1:
            arrival_ns = np.rint(arrival_ns / self.rate_scale).astype(np.int64)
        return replace(table, arrival_ns=arrival_ns)


def _shared_grid_ns(arrival_ns: Ints) -> int:
    """The step of the grid on which arrivals lie if most share their instant with another, otherwise 0."""
    stamps, counts = np.unique(arrival_ns, return_counts=True)
    if len(stamps) < 2 or 2 * counts[counts > 1].sum() <= len(arrival_ns):
        return 0
    return int(np.gcd.reduce(np.diff(stamps)))
