"""A cost of three numbers: for the laws of queueing theory, recorded cases, and measured engines without
physics."""

from typing import Literal

import numpy as np
from pydantic import NonNegativeFloat

from llmsim.cost.base import Account, Batch, CostModel, Step
from llmsim.deployment import Deployment
from llmsim.specification import specification


@specification
class LinearCost:
    """Seconds of an iteration = base_s + per_token_s * tokens + per_context_token_s * context tokens."""

    kind: Literal["linear"] = "linear"
    base_s: NonNegativeFloat = 0.0
    """Of every iteration; counted as overhead."""
    per_token_s: NonNegativeFloat = 0.0
    """Of each token computed, prompt or output; counted as compute."""
    per_context_token_s: NonNegativeFloat = 0.0
    """Of each token attended to, once a sequence; counted as HBM."""
    request_s: NonNegativeFloat = 0.0
    """Of each request, before it reaches the queue."""

    def start(self, deployment: Deployment) -> CostModel:
        """The cost model of any deployment: this object."""
        return self

    def step(self, batch: Batch) -> Step:
        """The time of one iteration; occupancy and latency are the same."""
        tokens = batch.prefill_tokens + batch.decode_sequences
        context = batch.prefill_context_tokens + batch.decode_context_tokens
        seconds = self.base_s + self.per_token_s * tokens + self.per_context_token_s * context
        return Step(seconds, seconds)

    def account(self, batches: Batch) -> Account:
        """What iterations spent their time on. Work is not known: FLOPs and bytes are 0."""
        tokens = np.asarray(batches.prefill_tokens + batches.decode_sequences)
        context = np.asarray(batches.prefill_context_tokens + batches.decode_context_tokens)
        zero = np.zeros(tokens.shape)
        return Account(
            flop=zero,
            hbm_bytes=zero,
            link_bytes=zero,
            compute_s=self.per_token_s * tokens,
            hbm_s=self.per_context_token_s * context,
            link_s=zero,
            overhead_s=np.full(tokens.shape, self.base_s),
        )
