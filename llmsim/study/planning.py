"""Which hardware, how many, at what cost: pruned by memory and closed form, the rest measured by search."""

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from llmsim.errors import ScenarioError
from llmsim.scenario import Scenario
from llmsim.study.candidates import Candidate, Choices, Loser, bound_within_slo, candidates
from llmsim.study.capacities import Capacity, capacity
from llmsim.study.load import Shape, shape_of
from llmsim.study.running import OnProgress, run_all

if TYPE_CHECKING:
    import pandas as pd

HOURS_A_MONTH = 730.0
SECONDS_A_DAY = 86_400.0
HEADROOM = 1.25
"""Replicas beyond those needed at peak: one of four zones may fail."""
SEARCHED = 6
"""Candidates that are simulated at most."""
MARGIN = 1.3
"""A candidate whose closed form costs so many times the best measured one is not simulated."""
REPLICATIONS = 3
VARIED = 0.2
"""How much an assumption is varied in the tornado, as a share, where nothing better is known."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What is to be served."""

    peak_per_s: float
    average_per_s: float

    @classmethod
    def of_users(cls, daily_users: float, requests_per_user: float, peak_to_average: float) -> "Traffic":
        """The traffic of so many daily users."""
        average = daily_users * requests_per_user / SECONDS_A_DAY
        return cls(average * peak_to_average, average)


class Option(NamedTuple):
    """A candidate that was measured."""

    candidate: Candidate
    capacity: Capacity
    """Of one replica."""
    replicas: int
    """Needed at peak."""
    with_headroom: int
    gpus: int
    """With headroom."""
    usd_per_month: float
    usd_per_million_tokens: float
    """Prompt and output tokens, at the average rate."""
    ttft_p99_s: float
    tpot_p99_s: float
    """At the capacity of a replica."""
    pareto: bool
    """Whether no other option is at least as good in cost, TTFT, TPOT and GPUs, and better in one."""


class Swing(NamedTuple):
    """What the cost is when one assumption is off."""

    assumption: str
    low_usd_per_month: float
    high_usd_per_month: float


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer and how sure it is."""

    traffic: Traffic
    shape: Shape
    headroom: float
    options: tuple[Option, ...]
    """Measured, the cheapest first."""
    losers: tuple[Loser, ...]
    tornado: tuple[Swing, ...]
    """Of the cheapest option, the largest swing first; by the closed form."""

    @property
    def best(self) -> Option:
        """The cheapest option."""
        return self.options[0]

    @property
    def closed_form_gpus(self) -> float:
        """GPUs of the best option at peak by the closed form, before headroom."""
        return self.traffic.peak_per_s / self.best.candidate.bound_per_s * self.best.candidate.gpus

    @property
    def margin(self) -> str:
        """How far the runner-up is, against the uncertainty of both."""
        if len(self.options) < 2:
            return "There is no runner-up."
        first, second = self.options[:2]
        margin = second.usd_per_month / first.usd_per_month - 1
        parts = [option.capacity.interval.relative_half_width for option in (first, second)]
        unsure = math.hypot(*(0.0 if math.isnan(part) else part for part in parts))
        verdict = "more than" if margin > unsure else "within"
        return f"{second.candidate.name} costs {100 * margin:.0f} % more, {verdict} the {100 * unsure:.0f} % of doubt."

    @property
    def difference(self) -> str:
        """Where the simulation differs from the closed form, and why."""
        best = self.best
        ratio = best.capacity.value / best.candidate.bound_per_s
        return (
            f"A replica bears {best.capacity.value:.3g} requests/s, {100 * ratio:.0f} % of the closed form's "
            f"{best.candidate.bound_per_s:.3g}: that one has no queue and no spread of lengths. "
            f"{best.capacity.fails_first}"
        )

    @property
    def frame(self) -> "pd.DataFrame":
        """A row an option."""
        import pandas as pd

        rows = [
            {
                "option": option.candidate.name,
                "requests_per_s": option.capacity.value,
                "closed_form_per_s": option.candidate.bound_per_s,
                "replicas": option.replicas,
                "with_headroom": option.with_headroom,
                "gpus": option.gpus,
                "usd_per_month": option.usd_per_month,
                "usd_per_million_tokens": option.usd_per_million_tokens,
                "ttft_p99_s": option.ttft_p99_s,
                "tpot_p99_s": option.tpot_p99_s,
                "pareto": option.pareto,
            }
            for option in self.options
        ]
        return pd.DataFrame(rows)


def plan(
    scenario: Scenario,
    traffic: Traffic,
    choices: Choices | None = None,
    *,
    headroom: float = HEADROOM,
    searched: int = SEARCHED,
    jobs: int = 1,
    progress: OnProgress | None = None,
) -> Plan:
    """Find the cheapest way to serve a scenario's model, workload and SLO at some traffic.

    Candidates that do not fit, miss the SLO when idle, or cost too much even by the closed form are left out, each
    with its reason; of the rest the ``searched`` cheapest are searched for the capacity of a replica. Replicas
    are independent, each with its part of the traffic.

    Raises:
        ScenarioError: when nothing serves it, or the scenario has several pools.
    """
    if traffic.peak_per_s <= 0 or headroom < 1 or searched < 1:
        raise ScenarioError(f"peak_per_s = {traffic.peak_per_s:g}, headroom = {headroom:g}: need > 0 and >= 1")
    shape = shape_of(scenario.workload.generate(scenario.seed))
    ways, losers = candidates(scenario, choices or Choices(), shape)
    measured: list[tuple[Candidate, Capacity]] = []
    queue = ways[:searched]
    losers += [Loser(way.name, f"not searched: its closed form is only number {n} by cost") for n, way in
               enumerate(ways[searched:], searched + 1)]  # fmt: skip
    while queue:
        wave, queue = queue[: max(jobs, 2)], queue[max(jobs, 2) :]
        search = partial(capacity, replications=REPLICATIONS)
        found = run_all(search, [way.scenario for way in wave], jobs, progress=progress)
        measured += [(way, each) for way, each in zip(wave, found, strict=True) if each.value]
        losers += [Loser(way.name, each.fails_first) for way, each in zip(wave, found, strict=True) if not each.value]
        queue, dear = _worth_it(queue, measured)
        losers += dear
    if not measured:
        told = "; ".join(f"{loser.name}: {loser.reason.splitlines()[0]}" for loser in losers[:3])
        raise ScenarioError(f"{scenario.name}: nothing serves it within its SLO: {told}")
    options = _pareto([_option(way, found, traffic, shape, headroom) for way, found in measured])
    options.sort(key=lambda option: option.usd_per_month)
    tornado = _tornado(options[0], scenario, traffic, shape)
    return Plan(traffic, shape, headroom, tuple(options), tuple(losers), tuple(tornado))


def _worth_it(
    queue: list[Candidate], measured: list[tuple[Candidate, Capacity]]
) -> tuple[list[Candidate], list[Loser]]:
    """Candidates whose closed form may still win, and the others."""
    best = min((way.usd_per_hour / found.value for way, found in measured), default=math.inf)
    kept, dear = [], []
    for way in queue:
        ratio = way.usd_per_hour / way.bound_per_s / best
        if ratio <= MARGIN:
            kept.append(way)
        else:
            dear.append(Loser(way.name, f"even its closed form costs {ratio:.2f} times the best measured"))
    return kept, dear


def _option(way: Candidate, found: Capacity, traffic: Traffic, shape: Shape, headroom: float) -> Option:
    replicas = math.ceil(traffic.peak_per_s / found.value)
    total = math.ceil(replicas * headroom)
    hourly = total * way.usd_per_hour
    tokens_per_hour = traffic.average_per_s * sum(shape) * 3600
    nearest = min(found.probes, key=lambda probe: (abs(probe.load - found.value), -probe.requests))
    return Option(
        candidate=way,
        capacity=found,
        replicas=replicas,
        with_headroom=total,
        gpus=total * way.gpus,
        usd_per_month=hourly * HOURS_A_MONTH,
        usd_per_million_tokens=hourly / tokens_per_hour * 1e6,
        ttft_p99_s=nearest.outcome.figure("ttft_s.p99"),
        tpot_p99_s=nearest.outcome.figure("tpot_s.p99"),
        pareto=True,
    )


def _pareto(options: list[Option]) -> list[Option]:
    def aims(option: Option) -> tuple[float, ...]:
        return option.usd_per_month, option.ttft_p99_s, option.tpot_p99_s, option.gpus

    def beaten(option: Option) -> bool:
        mine = aims(option)
        return any(
            aims(other) != mine and all(a <= b for a, b in zip(aims(other), mine, strict=True)) for other in options
        )

    return [option._replace(pareto=not beaten(option)) for option in options]


def _tornado(option: Option, scenario: Scenario, traffic: Traffic, shape: Shape) -> list[Swing]:
    """The cost when each assumption is off: capacity changes as the closed form's does."""
    (pool,) = option.candidate.scenario.pools
    base, cost = option.candidate.bound_per_s, option.usd_per_month

    def swing(name: str) -> Swing:
        ends = (round(getattr(shape, name) * factor) for factor in (1 - VARIED, 1 + VARIED))
        costs = [
            cost * base / bound_within_slo(pool, shape._replace(**{name: max(1, end)}), scenario.slo)[1] for end in ends
        ]
        return Swing(f"{name.replace('_', ' ')} ±{VARIED:.0%}", *costs)

    error = pool.accelerator.efficiency.relative_error or 0.1
    tpots = {key: limit for key, limit in scenario.slo.items() if key.startswith("tpot")}
    swings = [swing(name) for name in shape._fields]
    swings += [
        Swing(f"{name} ±{by:.0%}", cost * (1 - by), cost * (1 + by))
        for name, by in (("peak rate", VARIED), ("price", VARIED))
    ]
    swings.append(Swing(f"speed of the hardware ±{error:.0%}", cost / (1 + error), cost / (1 - error)))
    if tpots:
        looser, tighter = (
            cost * base / bound_within_slo(pool, shape, {key: limit * by for key, limit in tpots.items()})[1]
            for by in (1 + VARIED, 1 - VARIED)
        )
        swings.append(Swing(f"limit on TPOT ±{VARIED:.0%}", looser, tighter))
    return sorted(swings, key=lambda swing: -abs(swing.high_usd_per_month - swing.low_usd_per_month))
