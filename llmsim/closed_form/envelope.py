"""The back of the envelope: a few constants on the same specifications and the same counts of work.

Two shares of the data sheet and a time for each all-reduce; no launches, no host, activations on the chip. A cost model
like the others, on the counts of work of the ideal one.
"""

from dataclasses import replace

import numpy as np
from pydantic import NonNegativeFloat

from llmsim.cost import Account, AnalyticCost, Batch, CostModel, Step
from llmsim.deployment import Deployment, layout
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
