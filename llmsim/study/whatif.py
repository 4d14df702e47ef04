"""What would help: each resource and limit a little larger, in runs paired with the scenario as it is."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from llmsim.errors import ScenarioError
from llmsim.results.statistics import Interval, t_interval
from llmsim.scenario import Pool, Scenario
from llmsim.study.comparing import METRICS
from llmsim.study.running import OnProgress, kept, run_all, run_once, seeds_of

if TYPE_CHECKING:
    import pandas as pd

STEP = 0.1
"""How much each lever is pulled, as a share."""


class Lever(NamedTuple):
    """One thing made larger, and what that does to the metric."""

    name: str
    change: Interval
    """Change of the metric as a share, with its 95 % interval."""
    helps: bool
    """Whether the metric gets better beyond the interval."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The levers of a scenario, the most helpful first."""

    metric: str
    step: float
    pairs: int
    base: float
    """Mean of the metric over the runs as it is."""
    levers: tuple[Lever, ...]

    @property
    def advice(self) -> str:
        """What to try next."""
        helpful = [lever for lever in self.levers if lever.helps]
        if not helpful:
            return f"None of these changes {self.metric} for the better beyond its interval."
        told = ", then ".join(f"{lever.name} ({100 * lever.change.value:+.1f} %)" for lever in helpful[:3])
        return f"To better {self.metric}, try more {told}."

    @property
    def frame(self) -> "pd.DataFrame":
        """A row a lever: ``lever``, ``change``, ``low``, ``high``, ``helps``."""
        import pandas as pd

        rows = [(lever.name, *lever.change, lever.helps) for lever in self.levers]
        return pd.DataFrame(rows, columns=["lever", "change", "low", "high", "helps"])


def what_if(
    scenario: Scenario,
    metric: str = "ttft_s.p99",
    *,
    step: float = STEP,
    pairs: int = 4,
    jobs: int = 1,
    progress: OnProgress | None = None,
) -> WhatIf:
    """The change of a metric for each resource and limit ``step`` larger: HBM bandwidth, FLOP/s, KV blocks, links
    between GPUs, ``max_num_seqs``, ``max_num_batched_tokens``.

    ``metric`` is one of ``comparing.METRICS``. Runs of one seed have the same requests.

    Raises:
        ScenarioError: for an unknown metric, one without values, or fewer than two pairs.
    """
    if metric not in METRICS or pairs < 2 or step <= 0:
        raise ScenarioError(
            f"metric {metric}, pairs = {pairs}, step = {step:g}: allowed are {', '.join(METRICS)}; 2 or more; > 0"
        )
    scenario = kept(scenario, "requests")
    changed = {"": scenario} | {
        name: scenario.with_settings(settings) for name, settings in _levers(scenario, 1 + step).items()
    }
    runs = [run for each in changed.values() for run in seeds_of(each, pairs)]
    outcomes = run_all(run_once, runs, jobs, progress=progress)
    values = np.array([outcome.figure(metric) for outcome in outcomes]).reshape(len(changed), pairs)
    if not (values > 0).all():
        raise ScenarioError(f"metric {metric}: has no value in some run")
    levers = [_lever(name, values[0], row, metric) for name, row in zip(changed, values, strict=True) if name]
    better = 1 if METRICS[metric] == "more" else -1
    levers.sort(key=lambda lever: -better * lever.change.value)
    return WhatIf(metric, step, pairs, float(values[0].mean()), tuple(levers))


def _lever(name: str, base: "np.ndarray[Any, Any]", values: "np.ndarray[Any, Any]", metric: str) -> Lever:
    change = Interval(*(float(np.expm1(each)) for each in t_interval(np.log(values / base))))
    return Lever(name, change, change.low > 0 if METRICS[metric] == "more" else change.high < 0)


def _levers(scenario: Scenario, factor: float) -> dict[str, dict[str, Any]]:
    """Settings by the lever's name; of all pools at once."""
    levers: dict[str, dict[str, Any]] = {}
    for number, pool in enumerate(scenario.pools):
        for name, settings in _levers_of(pool, factor).items():
            levers.setdefault(name, {}).update({f"pools.{number}.{key}": value for key, value in settings.items()})
    return levers


def _levers_of(pool: Pool, factor: float) -> dict[str, dict[str, Any]]:
    deployment, chip = pool.deployment(), pool.accelerator
    ledger = deployment.ledger()
    peaks = {dtype: peak * factor for dtype, peak in chip.peak_flop_per_s.items()}
    blocks = {"num_gpu_blocks_override": round(ledger.num_gpu_blocks * factor), "max_model_len": ledger.max_model_len}
    levers: dict[str, dict[str, Any]] = {
        "HBM bandwidth": {"accelerator.hbm_bandwidth_bytes_per_s": chip.hbm_bandwidth_bytes_per_s * factor},
        "FLOP/s": {"accelerator.peak_flop_per_s": peaks},
        "KV blocks": blocks,
    }
    if deployment.gpus > 1:
        bandwidth = chip.scale_up.bandwidth_bytes_per_s * factor
        levers["link bandwidth"] = {"accelerator.scale_up.bandwidth_bytes_per_s": bandwidth}
    for key in ("max_num_seqs", "max_num_batched_tokens"):
        if (limit := getattr(deployment, key)) is not None:
            levers[key] = {f"engine.scheduler.{key}": int(np.ceil(limit * factor))}
    return levers
