"""The back of the envelope: a few constants on the same specifications and the same counts of work.

Between the cost model, whose counts it takes, and those who explain. Two shares of the data sheet and a time for each
all-reduce; no launches, no host, activations on the chip. ``saturated`` is a closed form over any cost model.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from pydantic import NonNegativeFloat

from llmsim.cost import Account, AnalyticCost, Batch, CostModel, Step
from llmsim.deployment import Deployment, batch_defaults, layout
from llmsim.hardware import Share
from llmsim.specification import specification


@specification
class EnvelopeCost:
    """Iteration times as the larger of FLOPs at ``mfu`` of peak and bytes at ``mbu`` of bandwidth.

    The defaults reproduce a public load curve of Llama-3.1-8B on an H100 (kubernetes-sigs/inference-perf: 128 slots,
    103 requests/s, 19.5 to 20.0 ms a token) within 5 %.
    """

    mfu: Share = 0.55
    """Share of peak FLOP/s that products reach."""
    mbu: Share = 0.65
    """Share of HBM bandwidth that reading weights, keys and values reaches."""
    all_reduce_s: NonNegativeFloat = 15e-6
    """Of each of the two all-reduces of a layer, when tensor parallel."""

    def start(self, deployment: Deployment) -> "Envelope":
        """The cost model of a deployment.

        Raises:
            ScenarioError: if a parallel size does not divide the model, or ranks span nodes without a link.
        """
        accelerator = deployment.accelerator
        reached = replace(
            accelerator,
            peak_flop_per_s={dtype: peak * self.mfu for dtype, peak in accelerator.peak_flop_per_s.items()},
            hbm_bandwidth_bytes_per_s=accelerator.hbm_bandwidth_bytes_per_s * self.mbu,
        )
        ideal = AnalyticCost(ideal=True).start(replace(deployment, accelerator=reached))
        layers = [stage.layers for stage in layout.stages(deployment)]
        each = 2 * self.all_reduce_s if deployment.tensor_parallel_size > 1 else 0.0
        return Envelope(ideal, Step(max(layers) * each, sum(layers) * each))


class Envelope:
    """``EnvelopeCost`` on a deployment; see ``CostModel``."""

    __slots__ = ("_all_reduces", "_ideal", "request_s")

    def __init__(self, ideal: CostModel, all_reduces: Step) -> None:
        self._ideal, self._all_reduces, self.request_s = ideal, all_reduces, 0.0

    def step(self, batch: Batch) -> Step:
        """The time of one iteration; 0 for an empty batch."""
        ideal, extra = self._ideal.step(batch), self._all_reduces
        if not ideal.occupancy_s:
            return ideal
        return Step(ideal.occupancy_s + extra.occupancy_s, ideal.latency_s + extra.latency_s)

    def account(self, batches: Batch) -> Account:
        """What iterations did and spent their time on."""
        account = self._ideal.account(batches)
        return account._replace(overhead_s=np.where(account.flop > 0, self._all_reduces.occupancy_s, 0.0))


def prompts(sequences: int, new_tokens: int, prefix: int = 0, window: int | None = None) -> Batch:
    """The iteration in which ``sequences`` prompts compute ``new_tokens`` each, ``prefix`` computed before, and sample.

    ``window``: tokens that windowed layers attend to.
    """
    full = prefix + new_tokens
    kept = full if window is None else min(prefix, window - 1) + new_tokens
    each = (
        1,
        new_tokens,
        _pairs(full, None) - _pairs(prefix, None),
        full,
        0,
        0,
        1,
        _pairs(full, window) - _pairs(prefix, window),
        kept,
        0,
    )
    return Batch(*(sequences * value for value in each))


def decodes(sequences: int, context: int, window: int | None = None) -> Batch:
    """The iteration in which ``sequences`` sequences decode a token each, which attends to ``context`` with itself."""
    kept = context if window is None else min(context, window)
    return Batch(0, 0, 0, 0, sequences, sequences * context, sequences, 0, 0, sequences * kept)


class Saturation(NamedTuple):
    """What a replica does whose slots are always full."""

    prompt_s: float
    """Time of iterations that a prompt takes."""
    decode_step_s: float
    """Between two tokens of a sequence while nobody computes a prompt."""
    request_s: float
    """Time of iterations that a request takes: the reciprocal of the throughput."""
    prompt_share: float
    """Of that time, spent on prompts."""
    tpot_s: float
    """Time per output token: decode steps with others' prompts between them."""


def saturated(
    cost: CostModel, deployment: Deployment, prompt_tokens: int, output_tokens: int, sequences: int
) -> Saturation:
    """The throughput of a data-parallel rank with ``sequences`` sequences always decoding, and their TPOT.

    1/X = S/R + (n-1)*t(B)/B: R prompt tokens a second in full iterations, t(B) a decode step at the average context
    S + n/2, the first token being the prompt's; TPOT = t(B) / (1 - share of prompts). An upper bound: no arrival
    waits, no iteration is less than full. With pipeline stages each of as many lanes has its part of the sequences.
    """
    prompt_s = _prompt_s(cost, deployment, prompt_tokens)
    lanes = min(deployment.pipeline_parallel_size, sequences)
    batch = decodes(sequences // lanes, prompt_tokens + output_tokens // 2, deployment.model.sliding_window)
    decode_step_s = lanes * cost.step(batch).occupancy_s
    request_s = prompt_s + (output_tokens - 1) * decode_step_s / sequences
    share = prompt_s / request_s
    return Saturation(prompt_s, decode_step_s, request_s, share, decode_step_s / (1 - share) if share < 1 else 0.0)


def _prompt_s(cost: CostModel, deployment: Deployment, tokens: int) -> float:
    """A prompt's part of full iterations: with others where several fit, in chunks where it does not fit in one."""
    budget = deployment.max_num_batched_tokens or batch_defaults(deployment.accelerator)[0]
    window = deployment.model.sliding_window
    if tokens <= budget:
        together = budget // tokens
        return cost.step(prompts(together, tokens, window=window)).occupancy_s / together
    return sum(
        cost.step(prompts(1, min(budget, tokens - start), start, window)).occupancy_s
        for start in range(0, tokens, budget)
    )


def _pairs(tokens: int, window: int | None) -> int:
    """Query-key pairs of causal attention from the first token on."""
    near = tokens if window is None else min(tokens, window)
    return near * (near + 1) // 2 + (tokens - near) * near
