"""The highest load that keeps the SLO: bracketed from a closed form, narrowed by short runs, measured by long ones."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from llmsim.errors import ScenarioError
from llmsim.results.confidence import SERIES, latency_interval
from llmsim.results.results import Results
from llmsim.results.stability import FEW_REQUESTS
from llmsim.results.statistics import Interval, t_interval
from llmsim.scenario import Scenario
from llmsim.simulation import simulate
from llmsim.study.load import Load, load_of, rate_bound_per_s, shape_of, shorter
from llmsim.study.running import OnProgress, Outcome, Progress, kept, outcome_of, run_all

if TYPE_CHECKING:
    import pandas as pd

QUARTER = 0.25
"""Share of the requests that a first look takes: enough when the load is far from the limit."""
RESOLUTION = 0.08
"""Relative width of the bracket in which capacity is then measured."""
FIRST_GUESS = 0.8
"""Share of the closed-form bound that is tried first."""
OVERLOAD = 1.5
"""How many times the closed-form bound, and then the last load, are tried to saturate a scenario without an SLO."""
MOST = 1e6
"""Times its own load from which on a scenario is held to bear anything."""
NEAR = 0.15
"""Relative distance to a load at which a quarter did not decide, within which no quarter is tried."""
FAR = 1.5
"""Times the limit, or its inverse, from which on the figure of a short run decides without an interval."""
IDLE = 1e-3
"""Share of the first load at which the SLO is out of reach at any load."""


class Probe(NamedTuple):
    """One run of the search."""

    load: float
    requests: int
    outcome: Outcome
    verdict: Literal["kept", "missed", "open"]
    """Whether the SLO is kept; open: the run is too short to tell."""
    score: float
    """The worst of value / limit, NaN without an SLO or without values."""
    worst: str
    """Key of the limit it belongs to; ``stable`` when the queue grows without end."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """The answer, and the runs it is from."""

    scenario: Scenario
    load: str
    """What the load is: requests/s, sessions/s or users."""
    value: float
    """The highest load that keeps the SLO (without one: that is stable); 0 when it is missed at any load."""
    interval: Interval
    """95 %, over the replications; between neighbouring whole numbers, these."""
    bound: float
    """Closed-form estimate of the rate at which all slots are always full; NaN for closed loops."""
    fails_first: str
    """A sentence: which limit is missed first above it, and what binds there."""
    probes: tuple[Probe, ...]
    requests: int
    """Requests simulated in all."""
    run_requests: int
    """Requests of one whole run at the answer."""
    replications: int

    @property
    def curve(self) -> "pd.DataFrame":
        """Latency over load, ascending: ``load``, ``requests``, ``verdict``, TTFT, TPOT and E2E mean and p99."""
        import pandas as pd

        keys = [f"{metric}_s.{statistic}" for metric in ("ttft", "tpot", "e2e") for statistic in ("mean", "p99")]
        keys += ["request_throughput_per_s", "output_throughput_tokens_per_s"]
        rows = [
            {"load": probe.load, "requests": probe.requests, "verdict": probe.verdict}
            | {key: probe.outcome.figure(key) for key in keys}
            for probe in sorted(self.probes, key=lambda probe: probe.load)
        ]
        return pd.DataFrame(rows)


def capacity(
    scenario: Scenario, *, replications: int = 5, jobs: int = 1, progress: OnProgress | None = None
) -> Capacity:
    """The highest load at which a scenario keeps its SLO; without an SLO, at which it is stable.

    The load is the rate of a preset, trace or clients, or the number of users of closed loops. Runs have as many
    requests as the scenario, fewer where a quarter of them already decides. All runs of one seed have the same
    requests at different rates.

    Raises:
        ScenarioError: when the workload has no load that could be changed.
    """
    return _Search(kept(scenario, "requests"), replications, jobs, progress).answer()


class _Search:
    """The runs made so far."""

    def __init__(self, scenario: Scenario, replications: int, jobs: int, progress: OnProgress | None) -> None:
        self._scenario = scenario
        self._load = load_of(scenario)
        self._replications = replications
        self._jobs = jobs
        self._progress = progress
        self._probes: list[Probe] = []
        self._requests = 0
        self._undecided: list[float] = []

    def answer(self) -> Capacity:
        """Bracket, narrow, measure."""
        shape = shape_of(self._scenario.workload.generate(self._scenario.seed))
        bounds = sum(rate_bound_per_s(pool, shape) for pool in self._scenario.pools)
        bound = float("nan") if self._load.whole or not np.isfinite(bounds) else bounds
        if not self._scenario.slo and not self._load.whole:
            return self._saturate(bound)
        start = self._load.value if np.isnan(bound) else FIRST_GUESS * bound
        low, high = self._bracket(start)
        if low is None:
            return self._result(0.0, Interval(0.0, 0.0, high.load), bound, high)
        self._look(low.load * np.array([0.3, 0.6, 0.85]))
        value, interval = self._measure(low, high)
        return self._result(value, interval, bound, high)

    def _saturate(self, bound: float) -> Capacity:
        """Without an SLO: what leaves while more comes than leaves."""
        load = self._load.value if np.isnan(bound) else OVERLOAD * bound
        while (high := self._run(load, 1.0)).outcome.stability.verdict != "saturated":
            if load > MOST * self._load.value and np.isnan(bound):
                raise ScenarioError(f"{self._scenario.name}: is not saturated by {load:g} {self._load.name}")
            load *= OVERLOAD
        tasks = [
            (load, replace(self._load.at(load), seed=self._scenario.seed + number), True, False)
            for number in range(1, self._replications)
        ]
        found = [high, *run_all(_probe_of, tasks, self._jobs)]
        self._add(*found[1:])
        interval = t_interval(np.array([probe.outcome.stability.served_per_s for probe in found]))
        self._look(interval.value * np.array([0.3, 0.6, 0.85]))
        return self._result(interval.value, interval, bound, high)

    def _bracket(self, start: float) -> tuple[Probe | None, Probe]:
        """The nearest loads found that keep and that miss the SLO; no first one when any load misses it."""
        low: Probe | None = None
        high: Probe | None = None
        load = self._rounded(start)
        while True:
            probe = self._decide(load)
            if probe.verdict == "kept":
                low = probe
            else:
                high = probe
            if high is None:
                load = self._rounded(load * (2 if self._load.whole else 1.25), up=True)
            elif low is None:
                if load <= (1 if self._load.whole else IDLE * start):
                    return None, high
                load = self._rounded(load / 2)
            elif high.load - low.load <= max(RESOLUTION * low.load, self._load.whole):
                return low, high
            else:
                load = self._rounded(_between(low, high))
                load = min(max(load, low.load + 1), high.load - 1) if self._load.whole else load

    def _decide(self, load: float) -> Probe:
        """A short run where it decides, otherwise a whole one."""
        near = any(abs(load / each - 1) < NEAR for each in self._undecided)
        tells = self._load.whole or QUARTER * self._whole(load) >= FEW_REQUESTS
        if tells and not near and (quarter := self._run(load, QUARTER)).verdict != "open":
            return quarter
        self._undecided.append(load)
        probe = self._run(load, 1.0)
        if probe.verdict == "open":
            probe = probe._replace(verdict="missed" if probe.score > 1 else "kept")
            self._probes[-1] = probe
        return probe

    def _run(self, load: float, share: float) -> Probe:
        scenario = self._load.at(load)
        probe = _probe(load, scenario if share == 1 else shorter(scenario, share), share == 1, self._load.whole)
        self._add(probe)
        return probe

    def _add(self, *probes: Probe) -> None:
        for probe in probes:
            self._probes.append(probe)
            self._requests += probe.requests
            if self._progress is not None:
                done = len(self._probes)
                self._progress(Progress(done, max(done, 8 + 2 * self._replications), float("nan")))

    def _look(self, loads: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> None:
        """Points of the curve further below."""
        for load in sorted({self._rounded(float(each)) for each in loads}):
            if not any(abs(probe.load / load - 1) < NEAR for probe in self._probes):
                self._run(load, QUARTER)

    def _measure(self, low: Probe, high: Probe) -> tuple[float, Interval]:
        """Where each seed's score crosses 1 between two loads, and the interval of their mean."""
        bracket = Interval(low.load, low.load, high.load)
        if not self._scenario.slo or (self._load.whole and high.load - low.load <= 1):
            return low.load, bracket
        ends = [
            probe if probe.requests == self._whole(probe.load) else self._run(probe.load, 1.0) for probe in (low, high)
        ]
        tasks = [
            (load, replace(self._load.at(load), seed=self._scenario.seed + number), True, self._load.whole)
            for number in range(1, self._replications)
            for load in (low.load, high.load)
        ]
        found = run_all(_probe_of, tasks, self._jobs)
        self._add(*found)
        pairs = zip([ends[0], *found[::2]], [ends[1], *found[1::2]], strict=True)
        crossings = [_crossing(below, above) for below, above in pairs]
        interval = t_interval(np.array(crossings))
        return (float(np.floor(interval.value)) if self._load.whole else interval.value), interval

    def _result(self, value: float, interval: Interval, bound: float, high: Probe) -> Capacity:
        shown = kept(shorter(self._load.at(high.load), QUARTER), "full")
        results = simulate(shown)
        self._requests += results.figures()["requests"]["total"]
        return Capacity(
            scenario=self._scenario,
            load=self._load.name,
            value=value,
            interval=interval,
            bound=bound,
            fails_first=f"{_told(high, self._load)} {results.what_binds()}",
            probes=tuple(self._probes),
            requests=self._requests,
            run_requests=self._whole(value or high.load),
            replications=self._replications,
        )

    def _whole(self, load: float) -> int:
        """Requests of a whole run."""
        return len(self._load.at(load).workload.generate(self._scenario.seed))

    def _rounded(self, load: float, up: bool = False) -> float:
        if not self._load.whole:
            return load
        return max(1.0, float(np.ceil(load) if up else np.floor(load)))


def _probe_of(task: tuple[float, Scenario, bool, bool]) -> Probe:
    return _probe(*task)


def _probe(load: float, scenario: Scenario, whole: bool, closed: bool) -> Probe:
    """One run: ``whole`` or the first part of one, of a ``closed`` loop or not."""
    results = simulate(scenario)
    outcome = outcome_of(results)
    score, worst = _score(outcome)
    saturated = outcome.stability.verdict == "saturated"
    return Probe(
        load=load,
        requests=outcome.summary["requests"]["total"],
        outcome=outcome,
        verdict=_verdict(results, outcome, score, whole, closed),
        score=score,
        worst="stable" if saturated and not score > 1 else worst,
    )


def _score(outcome: Outcome) -> tuple[float, str]:
    """The worst of value / limit over the SLO, and its key."""
    targets = outcome.summary["slo"]["targets"]
    scores = {
        key: target["value_s"] / target["limit_s"] for key, target in targets.items() if target["value_s"] is not None
    }
    if not scores:
        return float("nan"), ""
    worst = max(scores, key=lambda key: scores[key])
    return scores[worst], worst


def _verdict(
    results: Results, outcome: Outcome, score: float, whole: bool, closed: bool
) -> Literal["kept", "missed", "open"]:
    """Sequential: kept or missed only when the whole interval of each limit's figure, and the queue, say so, or when
    the worst figure is far from its limit.

    In a short run a queue that grows may be one that is filling up, and in a closed loop none grows without end.
    """
    stability = outcome.stability.verdict
    if stability == "saturated" and whole and not closed:
        return "missed"
    intervals = [
        (target["limit_s"], _interval(results, key)) for key, target in outcome.summary["slo"]["targets"].items()
    ]
    if score > FAR or any(interval.low > limit for limit, interval in intervals):
        return "missed"
    settled = stability == "stable" or closed
    if settled and (score < 1 / FAR or all(interval.high <= limit for limit, interval in intervals)):
        return "kept"
    return "open"


def _interval(results: Results, key: str) -> Interval:
    metric, statistic, _ = key.split("_")
    if metric in SERIES:
        return latency_interval(results.record, metric, statistic)
    value = results.figures()[f"{metric}_s"][statistic]
    return Interval(value, float("nan"), float("nan"))


def _between(low: Probe, high: Probe) -> float:
    """The next load to try: where the score would cross 1 in a power law, away from the ends of the bracket."""
    width = high.load - low.load
    if not (low.score < 1 < high.score):
        return low.load + width / 2
    return float(np.clip(_crossing(low, high), low.load + 0.2 * width, high.load - 0.2 * width))


def _crossing(low: Probe, high: Probe) -> float:
    """Where the score crosses 1, in a power law through two loads; at most 10 % beyond them."""
    ends, scores = np.log([low.load, high.load]), np.log([low.score, high.score])
    if not np.isfinite(scores).all() or scores[1] <= scores[0]:
        return low.load if not low.score <= 1 else high.load
    crossing = float(np.exp(ends[0] - scores[0] * (ends[1] - ends[0]) / (scores[1] - scores[0])))
    return float(np.clip(crossing, 0.9 * low.load, 1.1 * high.load))


def _told(high: Probe, load: Load) -> str:
    at = f"At {high.load:.4g} {load.name}"
    if high.worst in ("stable", ""):
        return f"{at} requests leave {100 * high.outcome.stability.growth:.0f} % slower than they come."
    target = high.outcome.summary["slo"]["targets"][high.worst]
    return f"{at} {high.worst} is {target['value_s']:.4g} s, the limit {target['limit_s']:g} s."
