"""What ``simulate`` returns: the record of a run with its tables and its summary, for notebooks and
reports."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmsim.results.attribution import Floats, attribute, what_binds
from llmsim.results.confidence import summarise_confidence
from llmsim.results.metrics import summarise
from llmsim.results.record import ITERATION_COLUMNS, REQUEST_COLUMNS, RunFacts, RunRecord
from llmsim.results.stability import Stability, judge_stability
from llmsim.results.storage import read_result, write_result
from llmsim.units import format_duration

if TYPE_CHECKING:
    import pandas as pd


class Results:
    """The results of one run.

    ``figures`` are the figures when they are known already: a record of level ``summary`` keeps no requests
    that they could be computed from.
    """

    __slots__ = ("_figures", "_iterations", "_requests", "_summary", "record")

    def __init__(self, record: RunRecord, figures: dict[str, Any] | None = None) -> None:
        self.record = record
        self._figures = figures
        self._summary: dict[str, Any] | None = None
        self._requests: pd.DataFrame | None = None
        self._iterations: pd.DataFrame | None = None

    @property
    def facts(self) -> RunFacts:
        """What is true of the run as a whole."""
        return self.record.facts

    @property
    def requests(self) -> "pd.DataFrame":
        """A row a request, with the columns of ``REQUEST_COLUMNS``; empty at record level ``summary``."""
        if self._requests is None:
            self._requests = _frame({name: self.record.requests[name] for name in REQUEST_COLUMNS})
        return self._requests

    @property
    def iterations(self) -> "pd.DataFrame":
        """A row an iteration, with the columns of ``ITERATION_COLUMNS``; empty unless the record level is
        ``full``."""
        if self._iterations is None:
            self._iterations = _frame({name: self.record.iterations[name] for name in ITERATION_COLUMNS})
        return self._iterations

    @property
    def itl(self) -> "pd.DataFrame":
        """The inter-token latencies of the window: each distinct ``itl_s``, ascending, and its ``count``."""
        totals = self.record.totals
        return _frame({"itl_s": totals.itl_values_s, "count": totals.itl_counts})

    @property
    def slo_met(self) -> bool | None:
        """Whether every limit of the SLO was kept; None without an SLO or without requests."""
        met: bool | None = self.figures()["slo"]["met"]
        return met

    def figures(self) -> dict[str, Any]:
        """The figures of the run as strict JSON values; ``metrics.summarise`` says what each means."""
        if self._figures is None:
            self._figures = summarise(self.record)
        return self._figures

    def summary(self) -> dict[str, Any]:
        """The figures, and how sure they are: ``stability`` has the fields of ``stability.Stability``, ``intervals``
        is what ``confidence.summarise_confidence`` returns."""
        if self._summary is None:
            stability, intervals = self.stability()._asdict(), summarise_confidence(self.record)
            self._summary = {**self.figures(), "stability": stability, "intervals": intervals}
        return self._summary

    def stability(self) -> Stability:
        """Whether requests left as fast as they came, with the evidence."""
        return judge_stability(self.record.requests, self.facts.window_start_s, self.facts.window_end_s)

    def attribution(self, decode_only_s: Floats | None = None) -> "pd.DataFrame":
        """Where the time of each finished request went; ``attribution.PARTS`` says what each column means."""
        return _frame(attribute(self.record, decode_only_s))

    def what_binds(self) -> str:
        """One sentence: the resource that took most of the time, and why requests wait."""
        return what_binds(self.record, self.figures())

    def save(self, folder: str | Path) -> None:
        """Write everything to a folder, which ``load_results`` reads back; the same run gives the same bytes.

        Raises ``ScenarioError`` when the folder holds something else than an earlier result.
        """
        write_result(Path(folder), self.record, self.summary())

    def __repr__(self) -> str:
        summary, met = self.figures(), self.slo_met
        counts, gpus = summary["requests"], summary["gpus"]
        rate = summary["output_throughput_tokens_per_s"]
        parts = [
            f"{counts['finished']:,} of {counts['total']:,} requests finished",
            *(f"{name.upper()} p99 {_duration(summary[f'{name}_s']['p99'])}" for name in ("ttft", "tpot")),
            f"{rate:,.0f} output tokens/s on {gpus} GPU{'' if gpus == 1 else 's'}",
            *([] if met is None else [f"SLO {'met' if met else 'missed'}"]),
        ]
        return f"<Results of {summary['scenario']!r}: {', '.join(parts)}>"


def load_results(folder: str | Path) -> Results:
    """Read a folder that ``Results.save`` wrote.

    Raises ``ScenarioError`` when it is not such a folder, is incomplete, is of an unknown version, or its
    ``scenario.json`` was edited after the run.
    """
    return Results(*read_result(Path(folder)))


def _duration(seconds: float | None) -> str:
    return "none" if seconds is None else format_duration(seconds)


def _frame(columns: dict[str, Any]) -> "pd.DataFrame":
    import pandas as pd

    return pd.DataFrame(columns)
