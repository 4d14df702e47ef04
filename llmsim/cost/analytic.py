"""The analytic cost model: a roofline over the operators of a deployment, folded once.

``AnalyticCost`` is what a scenario names. Started on a deployment it lists the operators (``layers``) and folds each
pipeline stage (``folding``): what depends on the number of tokens alone is looked up, and an iteration computes only
its attention.
"""

from dataclasses import replace
from typing import Literal

import numpy as np

from llmsim.cost.base import Account, Batch, CostModel, Floats, Step
from llmsim.cost.folding import FoldedStage
from llmsim.cost.host import Host
from llmsim.cost.ideal import IdealModel
from llmsim.cost.layers import experts_touched, operators
from llmsim.cost.operators import Collective, Operator, Statistics, seconds, total
from llmsim.deployment import Deployment, layout
from llmsim.specification import specification

_NOTHING = Step(0.0, 0.0)


@specification
class AnalyticCost:
    """Iteration times from FLOPs, bytes and links."""

    kind: Literal["analytic"] = "analytic"
    ideal: bool = False
    """What the hardware could do at best: efficiencies of 1, no launch or host time, activations kept on the
    chip, and compute, memory and links perfectly overlapped. A bound, and the roofline of textbooks."""

    def start(self, deployment: Deployment) -> CostModel:
        """The cost model of a deployment.

        Raises:
            ScenarioError: if a parallel size does not divide the model, or ranks span nodes without a link.
        """
        deployment.check()
        return IdealModel(deployment) if self.ideal else AnalyticModel(deployment)


class AnalyticModel:
    """The operators of one deployment, folded; see ``CostModel``."""

    __slots__ = ("_deployment", "_flop_per_token", "_host", "_listed", "_only", "_stages")

    def __init__(self, deployment: Deployment) -> None:
        stages = layout.stages(deployment)
        self._deployment = deployment
        self._host = Host.of(deployment)
        self._stages = [FoldedStage(deployment, stage, self._host) for stage in stages]
        self._only = self._stages[0] if len(stages) == 1 else None
        self._listed = [list(operators(deployment, stage)) for stage in stages]
        on_tokens = (each for listed in self._listed for each in listed if isinstance(each, Operator))
        counted = sum(each.count * each.flop for each in on_tokens if each.work == "tokens")
        self._flop_per_token = counted / len(stages)

    @property
    def request_s(self) -> float:
        """Time of a request outside the step loop, of the accelerator's host."""
        return self._deployment.accelerator.efficiency.request_s

    def step(self, batch: Batch) -> Step:
        """The time of one iteration; 0 for an empty batch."""
        if not batch[1] and not batch[4]:
            return _NOTHING
        if self._only is not None:
            duration = self._only.time(batch)
            return Step(duration, duration)
        times = [stage.time(batch) for stage in self._stages]
        host = self._host.waited(batch.prefill_sequences, batch.decode_sequences)
        return Step(max(times), sum(times) - (len(times) - 1) * host)

    def verify(self, sequences: int, tokens: int, context: int) -> float:
        """The seconds (occupancy) of an iteration in which each of ``sequences`` sequences computes ``tokens`` tokens
        and samples after each: its newest one and the drafted ones of speculative decoding.

        It is a decode step with so many rows a sequence: attention does the FLOPs of each on keys and values read once.
        ``context`` is what the last of them attends to; the others are taken to attend to as many.
        """
        window = self._deployment.model.sliding_window
        seen = context if window is None else min(context, window + tokens - 1)
        rows = np.array([sequences * tokens])
        batch = Batch(0, 0, 0, 0, sequences, sequences * context, rows, 0, 0, sequences * seen)
        computed = self._host.padded(rows)
        statistics = {name: np.atleast_1d(value) for name, value in batch._asdict().items()}
        statistics |= {"tokens": computed, "experts": experts_touched(self._deployment, computed)}
        times = [
            float(seconds(total(_widened(each, tokens).account(statistics) for each in listed))[0])
            for listed in self._listed
        ]
        return float(max(*times, self._stages[0].floor_s) + self._host.waited(0, sequences))

    def account(self, batches: Batch) -> Account:
        """What iterations did and spent their time on; the times are those of the slowest stage. Tokens that only pad
        a CUDA graph cost time and bytes, but do no work."""
        statistics = self._statistics(batches)
        padding = statistics["tokens"] - statistics["prefill_tokens"] - statistics["decode_sequences"]
        stages = [total(each.account(statistics) for each in listed) for listed in self._listed]
        flop, hbm_bytes, link_bytes, compute_s, hbm_s, link_s, overhead_s = stages[0]
        if len(stages) > 1:
            times = np.stack([stage[3:] for stage in stages])
            slowest = np.argmax(times.sum(axis=1), axis=0)
            flop, hbm_bytes, link_bytes = np.mean([stage[:3] for stage in stages], axis=0)
            compute_s, hbm_s, link_s, overhead_s = np.take_along_axis(times, slowest[None, None, :], axis=0)[0]
        overhead_s = overhead_s + self._host_s(batches, compute_s + hbm_s + link_s + overhead_s)
        flop = flop - padding * self._flop_per_token
        return Account(flop, hbm_bytes, link_bytes, compute_s, hbm_s, link_s, overhead_s)

    def parts(self, batch: Batch) -> dict[str, Account]:
        """What the operators of each name do in one iteration on its slowest stage, and the host; arrays of shape
        ``(1,)``."""
        one = Batch(*(np.array([field]) for field in batch))
        statistics = self._statistics(one)
        stages = [[(each.name, each.account(statistics)) for each in listed] for listed in self._listed]
        slowest = max(stages, key=lambda stage: float(seconds(total(part for _, part in stage))[0]))
        names = dict.fromkeys(name for name, _ in slowest)
        parts = {name: total(part for each, part in slowest if each == name) for name in names}
        zero, kernels_s = np.zeros(1), seconds(total(parts.values()))
        return {**parts, "host": Account(zero, zero, zero, zero, zero, zero, self._host_s(one, kernels_s))}

    def _host_s(self, batches: Batch, kernels_s: Floats) -> Floats:
        """Host time that iterations wait for, beside ``kernels_s`` of kernels."""
        prefills, decodes = np.asarray(batches.prefill_sequences), np.asarray(batches.decode_sequences)
        launching = np.maximum(kernels_s, self._stages[0].floor_s) - kernels_s
        host = launching + self._host.waited(prefills, decodes)
        return np.where(prefills + decodes > 0, host, 0.0)

    def _statistics(self, batches: Batch) -> Statistics:
        statistics = {name: np.asarray(value) for name, value in batches._asdict().items()}
        tokens = self._host.padded(statistics["prefill_tokens"] + statistics["decode_sequences"])
        return {**statistics, "tokens": tokens, "experts": experts_touched(self._deployment, tokens)}


def _widened(each: Operator | Collective, tokens: int) -> Operator | Collective:
    """An operator of decodes with ``tokens`` rows a sequence; any other as it is."""
    if isinstance(each, Collective) or each.rows != "decode_sequences":
        return each
    flop, tile_flop, row_bytes = (tokens * value for value in (each.flop, each.tile_flop, each.row_bytes))
    return replace(each, flop=flop, tile_flop=tile_flop, row_bytes=row_bytes)
