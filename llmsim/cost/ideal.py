"""The best a deployment could do: the roofline of textbooks, on the same operators as the analytic model.

Compute, memory and links overlap perfectly and run at their peaks; activations never leave the chip, so that
memory moves weights, keys and values only. An iteration takes as long as the busiest of the three.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from llmsim.cost.base import Account, Batch, Step
from llmsim.cost.layers import experts_touched, operators
from llmsim.cost.operators import Collective, Operator
from llmsim.deployment import Deployment, layout
from llmsim.hardware import EfficiencySpec

_PERFECT = EfficiencySpec(
    gemm_compute={"bfloat16": 1.0},
    gemm_hbm={"bfloat16": 1.0},
    gemm_launch_s={"bfloat16": 0.0},
    prefill_attention_compute=1.0,
    prefill_attention_launch_s=0.0,
    decode_attention_hbm=1.0,
    decode_attention_launch_s=0.0,
    moe_compute={"bfloat16": 1.0},
    moe_hbm={"bfloat16": 1.0},
    moe_launch_s={"bfloat16": 0.0},
    moe_imbalance_per_log2_ep=0.0,
    one_shot_launch_s=0.0,
    one_shot_link=1.0,
    ring_launch_s=0.0,
    ring_link=1.0,
    link_contention_exponent=0.0,
    elementwise_hbm=1.0,
    elementwise_launch_s=0.0,
    source="by definition",
)

_Sums = list[Any]
"""FLOPs and their seconds, HBM bytes, link bytes and their seconds: numbers, or arrays of one shape."""


class IdealModel:
    """Every operator's work added up by the statistic it is proportional to; see ``CostModel``."""

    __slots__ = ("_deployment", "_experts", "_hbm_bytes_per_s", "_stages")

    def __init__(self, deployment: Deployment) -> None:
        accelerator = replace(deployment.accelerator, efficiency=_PERFECT)
        self._deployment = replace(deployment, accelerator=accelerator)
        self._hbm_bytes_per_s = accelerator.hbm_bandwidth_bytes_per_s
        self._experts: dict[int, float] = {}
        self._stages = [_coefficients(operators(self._deployment, stage)) for stage in layout.stages(self._deployment)]

    @property
    def request_s(self) -> float:
        """Time of a request outside the step loop: none."""
        return 0.0

    def step(self, batch: Batch) -> Step:
        """The time of one iteration; 0 for an empty batch."""
        times = self._times(batch)
        return Step(max(times), sum(times))

    def account(self, batches: Batch) -> Account:
        """What iterations did; all the time of one goes to the busiest resource of its slowest stage."""
        arrays = Batch(*(np.asarray(field) for field in batches))
        tokens = arrays.prefill_tokens + arrays.decode_sequences
        statistics = self._statistics(arrays, experts_touched(self._deployment, tokens))
        sums = np.array([_sums(stage, statistics) for stage in self._stages])
        busy = np.stack((sums[:, 1], sums[:, 2] / self._hbm_bytes_per_s, sums[:, 4])).max(axis=1)
        compute_s, hbm_s, link_s = np.where(np.arange(3)[:, None] == busy.argmax(axis=0), busy, 0.0)
        flop, _, hbm_bytes, link_bytes, _ = sums.mean(axis=0)
        return Account(flop, hbm_bytes, link_bytes, compute_s, hbm_s, link_s, np.zeros(tokens.shape))

    def _times(self, batch: Batch) -> list[float]:
        """Each stage's time."""
        tokens = batch.prefill_tokens + batch.decode_sequences
        experts = self._experts.get(tokens)
        if experts is None:
            experts = self._experts[tokens] = float(experts_touched(self._deployment, tokens))
        statistics = self._statistics(batch, experts)
        times = []
        for stage in self._stages:
            _, compute_s, hbm_bytes, _, link_s = _sums(stage, statistics)
            times.append(max(compute_s, hbm_bytes / self._hbm_bytes_per_s, link_s))
        return times

    def _statistics(self, batch: Batch, experts: Any) -> dict[str, Any]:
        tokens = batch.prefill_tokens + batch.decode_sequences
        return {**batch._asdict(), "tokens": tokens, "experts": experts}


def _coefficients(listed: Iterable[Operator | Collective]) -> Mapping[tuple[str, bool], _Sums]:
    """Work by (statistic, whether per unit of it or once if it is not 0)."""
    result: dict[tuple[str, bool], _Sums] = {}

    def add(statistic: str, per_unit: bool, *work: float) -> None:
        have = result.setdefault((statistic, per_unit), [0.0] * 5)
        result[statistic, per_unit] = [old + new for old, new in zip(have, work, strict=True)]

    for each in listed:
        if isinstance(each, Collective):
            sent = each.count * each.ring_bytes
            add(each.rows, True, 0.0, 0.0, 0.0, sent, sent / each.ring_bytes_per_s)
        else:
            flop = each.count * each.flop
            add(each.work, True, flop, flop / each.flop_per_s, 0.0, 0.0, 0.0)
            add(each.read, True, 0.0, 0.0, each.count * each.read_bytes, 0.0, 0.0)
            add(each.rows, False, 0.0, 0.0, each.count * each.fixed_bytes, 0.0, 0.0)
    return {key: work for key, work in result.items() if any(work)}


def _sums(coefficients: Mapping[tuple[str, bool], _Sums], statistics: Mapping[str, Any]) -> _Sums:
    """The work of a batch."""
    flop = compute_s = hbm_bytes = link_bytes = link_s = 0.0
    for (name, per_unit), work in coefficients.items():
        value = statistics[name]
        units = value if per_unit else 1.0 * (value > 0)
        flop = flop + work[0] * units
        compute_s = compute_s + work[1] * units
        hbm_bytes = hbm_bytes + work[2] * units
        link_bytes = link_bytes + work[3] * units
        link_s = link_s + work[4] * units
    return [flop, compute_s, hbm_bytes, link_bytes, link_s]
