"""Two scenarios against each other by paired runs: the effect on each figure, and how sure it is."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from llmsim.errors import ScenarioError
from llmsim.results.statistics import Floats, Interval, paired_power, pairs_needed, t_interval
from llmsim.scenario import Scenario
from llmsim.study.running import OnProgress, Outcome, kept, run_all, run_once, seeds_of
from llmsim.workload.random_streams import stream

if TYPE_CHECKING:
    import pandas as pd

METRICS: dict[str, Literal["less", "more"]] = {
    "ttft_s.p50": "less",
    "ttft_s.p99": "less",
    "tpot_s.p50": "less",
    "tpot_s.p99": "less",
    "e2e_s.p50": "less",
    "e2e_s.p99": "less",
    "request_throughput_per_s": "more",
    "output_throughput_tokens_per_s": "more",
    "goodput_per_s": "more",
    "cost_usd_per_million_output_tokens": "less",
}
"""Figures that are compared, and what is better."""
EFFECT = 0.05
"""The effect that matters, as a share, where nothing else is said."""
TRIALS = 2000
"""Drawn comparisons for a rate of false alarms: its own error is half a per cent."""

Verdict = Literal["better", "worse", "no difference seen", "too few"]


class Effect(NamedTuple):
    """What B does to one figure of A."""

    metric: str
    a: float
    """Geometric mean over the pairs."""
    b: float
    change: Interval
    """B / A - 1, with its 95 % interval."""
    power: float
    """Chance that these pairs see the effect that matters, if there is one."""
    pairs_needed: int
    """Pairs that see it with a chance of 80 %."""
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Comparison:
    """Paired runs of two scenarios: each pair has the same seed, hence the same requests."""

    a: str
    b: str
    pairs: int
    noise_cv: float
    effect: float
    effects: tuple[Effect, ...]
    """Of every figure that both have."""

    @property
    def frame(self) -> "pd.DataFrame":
        """A row a figure: ``metric``, ``a``, ``b``, ``change``, ``low``, ``high``, power, pairs needed, verdict."""
        import pandas as pd

        rows = [
            (each.metric, each.a, each.b, *each.change, each.power, each.pairs_needed, each.verdict)
            for each in self.effects
        ]
        columns = ["metric", "a", "b", "change", "low", "high", "power", "pairs_needed", "verdict"]
        return pd.DataFrame(rows, columns=columns)


def compare(
    a: Scenario,
    b: Scenario,
    *,
    pairs: int = 6,
    noise_cv: float = 0.0,
    effect: float = EFFECT,
    jobs: int = 1,
    progress: OnProgress | None = None,
) -> Comparison:
    """Run two scenarios in pairs with the same seeds, and say of each figure whether B is better.

    ``noise_cv`` is the variation from run to run of a real machine, as a share: each figure of each run is multiplied
    by its own lognormal noise. ``effect`` is the change that matters, as a share. A verdict is ``better`` or ``worse``
    when the 95 % interval leaves out 0, ``no difference seen`` when these pairs would have seen the effect with a
    chance of 80 %, and otherwise ``too few``.

    Raises:
        ScenarioError: for fewer than two pairs, which have no error estimate.
    """
    if pairs < 2 or effect <= 0 or noise_cv < 0:
        raise ScenarioError(
            f"pairs = {pairs}, effect = {effect:g}, noise_cv = {noise_cv:g}: needs 2 or more, > 0, >= 0"
        )
    scenarios = [
        kept(each, "requests") for pair in zip(seeds_of(a, pairs), seeds_of(b, pairs), strict=True) for each in pair
    ]
    outcomes = run_all(run_once, scenarios, jobs, progress=progress)
    noise = _noise(a.seed, noise_cv, 2 * pairs)
    effects = []
    for metric in METRICS:
        values = np.array([outcome.figure(metric) for outcome in outcomes]) * noise[metric]
        if not np.isnan(values).any() and (values > 0).all():
            effects.append(_effect(metric, values[::2], values[1::2], effect))
    return Comparison(a.name, b.name, pairs, noise_cv, effect, tuple(effects))


def false_alarms(
    scenario: Scenario,
    metric: str,
    *,
    pairs: int = 6,
    noise_cv: float = 0.0,
    runs: int = 24,
    jobs: int = 1,
    progress: OnProgress | None = None,
) -> float:
    """How often A against A is called better or worse, as a share: 5 % if the intervals are right.

    ``runs`` runs of the scenario under different seeds are put into pairs at random, with noise of their own, again
    and again; unlike in ``compare`` the two of a pair have different requests.

    Raises:
        ScenarioError: for fewer than two pairs, or fewer runs than the pairs need.
    """
    if pairs < 2 or runs < 2 * pairs:
        raise ScenarioError(f"pairs = {pairs}, runs = {runs}: needs 2 pairs or more, and two runs a pair")
    outcomes: list[Outcome] = run_all(run_once, seeds_of(kept(scenario, "requests"), runs), jobs, progress=progress)
    logs = np.log([outcome.figure(metric) for outcome in outcomes])
    rng = stream(scenario.seed, "compare/false alarms")
    alarms = 0
    for _ in range(TRIALS):
        chosen = rng.permutation(logs)[: 2 * pairs] + rng.normal(0.0, noise_cv, 2 * pairs)
        change = t_interval(chosen[::2] - chosen[1::2])
        alarms += change.low > 0 or change.high < 0
    return alarms / TRIALS


def _effect(metric: str, a: Floats, b: Floats, effect: float) -> Effect:
    ratios = np.log(b / a)
    change, sd, size = t_interval(ratios), float(np.std(ratios, ddof=1)), float(np.log1p(effect))
    power = paired_power(size, sd, len(ratios))
    share = Interval(*(float(np.expm1(each)) for each in change))
    mean_a, mean_b = (float(np.exp(np.mean(np.log(each)))) for each in (a, b))
    return Effect(metric, mean_a, mean_b, share, power, pairs_needed(size, sd), _verdict(metric, change, power))


def _verdict(metric: str, change: Interval, power: float) -> Verdict:
    if change.low > 0 or change.high < 0:
        return "better" if (change.value > 0) == (METRICS[metric] == "more") else "worse"
    return "no difference seen" if power >= 0.8 else "too few"


def _noise(seed: int, cv: float, runs: int) -> dict[str, Floats]:
    """Factors of each figure in each run; a stream a figure, so that one more figure changes no other."""
    return {metric: np.exp(stream(seed, f"compare/noise/{metric}").normal(0.0, cv, runs)) for metric in METRICS}
