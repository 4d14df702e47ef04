"""The analytic cost model: a roofline over the operators of a deployment, folded once.

``AnalyticCost`` is what a scenario names. Started on a deployment it lists the operators (``layers``), and
folds them: what depends on the number of tokens alone is looked up, and an iteration computes one attention
layer of each sort.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from llmsim.cost.base import Account, Batch, CostModel, Floats, Ints, Step
from llmsim.cost.ideal import IdealModel
from llmsim.cost.layers import (
    StageOperators,
    attention_operators,
    experts_touched,
    operators,
    stage_operators,
)
from llmsim.cost.operators import Operator, Statistics, seconds, total
from llmsim.deployment import Deployment, Stage, layout
from llmsim.specification import specification

_TOKEN_COUNTS = 256
"""Token counts priced at a time, on the first use of one of them."""


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

    __slots__ = (
        "_accounted",
        "_by_sampled",
        "_by_tokens",
        "_deployment",
        "_full",
        "_host",
        "_stages",
        "_window",
    )

    def __init__(self, deployment: Deployment) -> None:
        efficiency = deployment.accelerator.efficiency
        stages = layout.stages(deployment)
        full = attention_operators(deployment, window=False)
        window = attention_operators(deployment, window=True)
        self._deployment = deployment
        self._host = (efficiency.host_iteration_s, efficiency.host_sequence_s)
        self._stages = [_Stage(stage_operators(deployment, each), each) for each in stages]
        self._full = (_fold(full.prefill), _fold(full.decode))
        self._window = (_fold(window.prefill), _fold(window.decode)) if stages[0].window_layers else ((), ())
        self._by_tokens: dict[int, tuple[float, ...]] = {}
        self._by_sampled: dict[int, float] = {}
        self._accounted = [list(operators(deployment, stage)) for stage in stages]

    @property
    def request_s(self) -> float:
        """Time of a request outside the step loop, of the accelerator's host."""
        return self._deployment.accelerator.efficiency.request_s

    def step(self, batch: Batch) -> Step:
        """The time of one iteration; 0 for an empty batch."""
        sequences = batch.prefill_sequences + batch.decode_sequences
        tokens = batch.prefill_tokens + batch.decode_sequences
        if not tokens:
            return Step(0.0, 0.0)
        full = window = 0.0
        if batch.prefill_tokens:
            full += _attention_s(self._full[0], batch, math.sqrt)
            window += _attention_s(self._window[0], batch, math.sqrt)
        if batch.decode_sequences:
            full += _attention_s(self._full[1], batch, math.sqrt)
            window += _attention_s(self._window[1], batch, math.sqrt)
        times = self._stage_times(tokens, batch.sampled, full, window)
        host = self._host[0] + self._host[1] * sequences
        if len(times) == 1:
            return Step(times[0] + host, times[0] + host)
        return Step(max(times) + host, sum(times) + host)

    def decode(self, sequences: int, context_tokens: Ints, window_tokens: Ints) -> Floats:
        """The times of iterations of ``sequences`` decodes, each sampling; see ``CostModel.decode``."""
        batch = Batch(0, 0, 0, 0, sequences, context_tokens, sequences, 0, 0, window_tokens)
        full = 0.0 + _attention_s(self._full[1], batch, np.sqrt)
        window = 0.0 + _attention_s(self._window[1], batch, np.sqrt)
        times = self._stage_times(sequences, sequences, full, window)
        host = self._host[0] + self._host[1] * sequences
        slowest: Floats = times[0] if len(times) == 1 else np.maximum.reduce(times)
        return slowest + host

    def account(self, batches: Batch) -> Account:
        """What iterations did and spent their time on; the times are those of the slowest stage."""
        statistics = self._statistics(batches)
        stages = [total(each.account(statistics) for each in listed) for listed in self._accounted]
        tokens = statistics["tokens"]
        sequences = np.asarray(batches.prefill_sequences + batches.decode_sequences)
        host = np.where(tokens > 0, self._host[0] + self._host[1] * sequences, 0.0)
        if len(stages) == 1:
            return stages[0]._replace(overhead_s=stages[0].overhead_s + host)
        slowest = np.argmax([seconds(stage) for stage in stages], axis=0)
        flop, hbm_bytes, link_bytes = np.mean([stage[:3] for stage in stages], axis=0)
        times = np.stack([stage[3:] for stage in stages])
        compute_s, hbm_s, link_s, overhead_s = np.take_along_axis(times, slowest[None, None, :], axis=0)[0]
        return Account(flop, hbm_bytes, link_bytes, compute_s, hbm_s, link_s, overhead_s + host)

    def _stage_times(self, tokens: int, sampled: int, full: Any, window: Any) -> list[Any]:
        """Each stage's time, from that of one attention layer with and without a window."""
        fixed = self._by_tokens.get(tokens) or self._price(tokens)
        head = self._by_sampled.get(sampled)
        if head is None:
            head = self._price_head(sampled)
        *earlier, last = (
            price + stage.layers.full_layers * full + stage.layers.window_layers * window
            for price, stage in zip(fixed, self._stages, strict=True)
        )
        return [*earlier, last + head]

    def _price(self, tokens: int) -> tuple[float, ...]:
        """Each stage's time for what depends on the number of tokens alone; fills in the neighbours too."""
        first = tokens - tokens % _TOKEN_COUNTS
        counts = np.arange(first, first + _TOKEN_COUNTS)
        statistics = {"tokens": counts, "experts": experts_touched(self._deployment, counts)}
        columns = [
            seconds(total(each.account(statistics) for each in stage.operators.on_tokens)).tolist()
            for stage in self._stages
        ]
        self._by_tokens.update(zip(counts.tolist(), zip(*columns, strict=True), strict=True))
        return self._by_tokens[tokens]

    def _price_head(self, sampled: int) -> float:
        """The time of the LM head and the sampler for so many rows."""
        statistics = {"sampled": np.array([sampled]), "tokens": np.array([sampled])}
        listed = self._stages[-1].operators.on_sampled
        price = float(seconds(total(each.account(statistics) for each in listed))[0])
        self._by_sampled[sampled] = price
        return price

    def _statistics(self, batches: Batch) -> Statistics:
        statistics = {name: np.asarray(value) for name, value in batches._asdict().items()}
        tokens = statistics["prefill_tokens"] + statistics["decode_sequences"]
        return {**statistics, "tokens": tokens, "experts": experts_touched(self._deployment, tokens)}


class _Stage(NamedTuple):
    operators: StageOperators
    layers: Stage


_Folded = tuple[int, float, int, float, int, float, float, float]
"""work, its seconds; read, its seconds; rows, their seconds; fixed seconds; launch seconds. Statistics are
positions in ``Batch``."""


def _fold(kernels: list[Operator]) -> tuple[_Folded, ...]:
    """Operators on keys and values as coefficients: of seconds, by position in ``Batch``."""
    return tuple(
        (
            Batch._fields.index(each.work),
            each.flop / each.flop_per_s,
            Batch._fields.index(each.read),
            each.read_bytes / each.bytes_per_s,
            Batch._fields.index(each.rows),
            each.row_bytes / each.bytes_per_s,
            each.fixed_bytes / each.bytes_per_s,
            each.launch_s,
        )
        for each in kernels
    )


def _attention_s(folded: tuple[_Folded, ...], batch: Batch, sqrt: Callable[[Any], Any]) -> Any:
    """The time of one layer: numbers with ``math.sqrt``, arrays with ``numpy.sqrt``, alike to a bit."""
    sum_s: Any = 0.0
    for work, work_s, read, read_s, rows, row_s, fixed_s, launch_s in folded:
        compute = batch[work] * work_s
        memory = batch[read] * read_s + batch[rows] * row_s + fixed_s
        sum_s = sum_s + (sqrt(compute * compute + memory * memory) + launch_s)
    return sum_s
