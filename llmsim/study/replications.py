"""One scenario under several seeds: each figure with its interval, the warm-up left out."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from llmsim.errors import ScenarioError
from llmsim.results.record import Columns
from llmsim.results.statistics import Interval, mser5, t_interval
from llmsim.scenario import Scenario
from llmsim.simulation import simulate
from llmsim.study.running import OnProgress, Outcome, figures, kept, run_all, run_once, seeds_of

if TYPE_CHECKING:
    import pandas as pd

WIDE = 0.05
"""Relative half-width from which on ``advice`` asks for more runs."""


@dataclass(frozen=True, slots=True)
class Replications:
    """Runs of one scenario that differ in their seed only."""

    scenario: Scenario
    """As it was run: with the warm-up that was found."""
    outcomes: tuple[Outcome, ...]
    warm_up: str
    """A sentence: what was left out, and why."""

    def interval(self, key: str) -> Interval:
        """A figure by its dotted key, with its 95 % interval over the runs that have it."""
        values = np.array([outcome.figure(key) for outcome in self.outcomes])
        return t_interval(values[~np.isnan(values)])

    def frame(self) -> "pd.DataFrame":
        """A row a figure of the summary: ``figure``, ``mean``, ``low``, ``high``."""
        import pandas as pd

        keys = [key for key in figures(self.outcomes[0].summary) if key not in ("schema_version", "seed")]
        return pd.DataFrame([(key, *self.interval(key)) for key in keys], columns=["figure", "mean", "low", "high"])

    @property
    def verdict(self) -> str:
        """How many of the runs were stable, saturated or too short to tell, with the largest rate deficit."""
        verdicts = [outcome.stability.verdict for outcome in self.outcomes]
        counts = {verdict: verdicts.count(verdict) for verdict in dict.fromkeys(verdicts)}
        worst = max(outcome.stability.growth for outcome in self.outcomes)
        names = {"short": "too short to tell", "unknown": "with too few requests to tell"}
        told = ", ".join(f"{count} {names.get(verdict, verdict)}" for verdict, count in counts.items())
        return f"Of {len(verdicts)} runs {told}; the backlog grew by {100 * worst:.1f} % of the arrivals at most."

    def advice(self, key: str, wanted: float = WIDE) -> str:
        """Whether a figure is known to the share ``wanted``, and what it would take."""
        found = self.interval(key)
        if not found.relative_half_width > wanted:
            return f"{key} is known to {100 * found.relative_half_width:.1f} %."
        runs = int(np.ceil(len(self.outcomes) * (found.relative_half_width / wanted) ** 2))
        return (
            f"{key} is known to {100 * found.relative_half_width:.0f} % only: for {100 * wanted:.0f} % about {runs:,} "
            "runs, or runs as many times longer, are needed."
        )


def replicate(
    scenario: Scenario, replications: int, *, jobs: int = 1, progress: OnProgress | None = None
) -> Replications:
    """Run a scenario under several seeds: its own and those after it.

    Unless ``run.warm_up_s`` is given, MSER-5 finds the warm-up in end-to-end latencies of the first seed, in order
    of arrival, and all runs leave it out.

    Raises:
        ScenarioError: for fewer than two replications.
    """
    if replications < 2:
        raise ScenarioError(f"replications = {replications}: an interval needs at least 2")
    scenario = kept(scenario, "requests")
    told = f"Warm-up: the first {scenario.run.warm_up_s:g} s, as given."
    if not scenario.run.warm_up_s:
        warm_up_s, told = find_warm_up(simulate(scenario).record.requests)
        scenario = replace(scenario, run=replace(scenario.run, warm_up_s=warm_up_s))
    outcomes = run_all(run_once, seeds_of(scenario, replications), jobs, progress=progress)
    return Replications(scenario, tuple(outcomes), told)


def find_warm_up(requests: Columns) -> tuple[float, str]:
    """The warm-up in seconds since the first arrival, and a sentence about it."""
    finished = requests["outcome"] == "finished"
    arrival_s = requests["arrival_s"][finished]
    order = np.argsort(arrival_s, kind="stable")
    cut = mser5((requests["finish_s"][finished] - arrival_s)[order])
    if cut is None:
        return 0.0, "Warm-up: none left out, because latencies do not settle in the first half of the run (MSER-5)."
    if not cut:
        return 0.0, "Warm-up: none found (MSER-5)."
    warm_up_s = float(arrival_s[order[cut]] - np.nanmin(requests["arrival_s"]))
    return warm_up_s, f"Warm-up: the first {cut:,} requests, {warm_up_s:.3g} s, are left out (MSER-5)."
