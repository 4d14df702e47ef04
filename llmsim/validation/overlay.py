"""A measured per-request table beside a run of the same requests: what the figures of an overlay are drawn from."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from llmsim.errors import ScenarioError
from llmsim.results.results import Results
from llmsim.validation import server_traces
from llmsim.validation.facts import SkippedRowError
from llmsim.validation.rows import Row
from llmsim.validation.server_traces import Floats
from llmsim.validation.tables import kind_of, read_rows

if TYPE_CHECKING:
    import pandas as pd

PERCENTILES = (10, 25, 50, 75, 90, 95, 99)


@dataclass(frozen=True, slots=True)
class Overlay:
    """The requests of a server and of its simulation, row by row the same ones, in order of arrival."""

    name: str
    measured: "pd.DataFrame"
    """With ``arrival_s``, ``first_token_s``, ``finish_s``, ``prompt_tokens``, ``output_tokens``; arrivals from 0."""
    simulated: "pd.DataFrame"

    def latencies(self) -> tuple[dict[str, Floats], dict[str, Floats]]:
        """Seconds of each request by metric (ttft, tpot, e2e), measured and simulated."""
        return server_traces.latencies(self.measured), server_traces.latencies(self.simulated)

    def percentile_errors(self) -> dict[str, Floats]:
        """Simulated over measured, less 1, at each of ``PERCENTILES``, by metric."""
        measured, simulated = self.latencies()
        return {
            metric: np.percentile(simulated[metric], PERCENTILES) / np.percentile(measured[metric], PERCENTILES) - 1
            for metric in measured
        }

    def in_flight(self, edges_s: Floats) -> tuple[Floats, Floats]:
        """Requests that have arrived and not ended at each of these times, measured and simulated."""
        measured, simulated = (_in_flight(each, edges_s) for each in (self.measured, self.simulated))
        return measured, simulated


def overlay(path: Path) -> Overlay:
    """A measured table of requests, simulated as they came.

    Raises:
        ScenarioError: when the file is no such table, or its server cannot be simulated.
    """
    rows = _rows(path)
    try:
        case, measured = server_traces.case_of(rows, path), server_traces.observed(rows)
    except SkippedRowError as skipped:
        raise ScenarioError(f"{path}: cannot be simulated: {skipped.reason.value}: {skipped.detail}") from None
    simulated = case.run().requests
    both = np.array(case.answered) & (simulated.outcome == "finished").to_numpy()
    return Overlay(path.stem, _from_zero(measured)[both], simulated[both])


def beside(results: Results, path: Path) -> Overlay:
    """A measured table of requests beside a run: of the same requests, or of others, compared as distributions.

    Raises:
        ScenarioError: when the file is no such table, or the result kept no requests.
    """
    rows = _rows(path)
    try:
        measured = server_traces.observed(rows)
    except SkippedRowError as skipped:
        raise ScenarioError(f"{path}: cannot be compared: {skipped.reason.value}: {skipped.detail}") from None
    simulated = results.requests
    if simulated.empty:
        raise ScenarioError(f"the result kept no requests to compare with {path}; record = 'requests' keeps them")
    simulated = simulated.sort_values("arrival_s", kind="stable")
    answered = (measured.output_tokens > 0).to_numpy()
    finished = (simulated.outcome == "finished").to_numpy()
    if len(measured) == len(simulated):
        answered = finished = answered & finished
    return Overlay(path.stem, _from_zero(measured)[answered], _from_zero(simulated)[finished])


def _rows(path: Path) -> list[Row]:
    rows = read_rows(path)
    if kind_of(rows, path).name != server_traces.KIND:
        raise ScenarioError(f"{path}: no table of requests; needs {', '.join(server_traces.COLUMNS)} and their times")
    return rows


def _from_zero(requests: "pd.DataFrame") -> "pd.DataFrame":
    """With the first arrival at 0."""
    columns = ["arrival_s", "first_token_s", "finish_s"]
    return requests.assign(**{column: requests[column] - requests.arrival_s.min() for column in columns})


def _in_flight(requests: "pd.DataFrame", edges_s: Floats) -> Floats:
    arrived = np.searchsorted(np.sort(requests.arrival_s.to_numpy()), edges_s, side="right")
    ended = np.searchsorted(np.sort(requests.finish_s.to_numpy()), edges_s, side="right")
    return (arrived - ended).astype(np.float64)
