"""What a cost model is asked and what it answers: the contract between the engine and the physics.

The engine describes an iteration by a few sums over its batch, because every operator's work is linear in them (or,
for experts and windows, a function of them). A cost model turns them into seconds, and after the run into what those
seconds were spent on.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from llmsim.deployment import Deployment

Floats = NDArray[np.float64]


class Batch(NamedTuple):
    """One iteration as sums over the sequences it computes. Each field is an int, or for ``account`` an array.

    ``window`` fields count what layers with a sliding window W attend to; they equal their full counterparts for a
    model without windows.
    """

    prefill_sequences: Any
    """Sequences that compute prompt tokens (or recompute after a preemption)."""
    prefill_tokens: Any
    """New tokens of those sequences."""
    prefill_pairs: Any
    """Query-key pairs of their causal attention: sum of (full*(full+1) - prefix*(prefix+1))/2, where ``prefix`` is
    the context before the iteration and ``full`` after it."""
    prefill_context_tokens: Any
    """Sum of ``full`` over those sequences: the keys and values they read."""
    decode_sequences: Any
    """Sequences that compute one token."""
    decode_context_tokens: Any
    """Sum over the decodes of the tokens each attends to, the new one included."""
    sampled: Any
    """Sequences that sample a token (rows of the LM head)."""
    prefill_window_pairs: Any
    prefill_window_tokens: Any
    """``prefill_context_tokens`` with each sequence's context before the chunk cut at W - 1."""
    decode_window_tokens: Any
    """Sum over the decodes of min(context, W)."""


class Step(NamedTuple):
    """How long one iteration takes, in float seconds."""

    occupancy_s: float
    """Until the next batch may start on the first stage."""
    latency_s: float
    """Until the sampled tokens are out. Differs from occupancy only with pipeline parallelism."""


class Account(NamedTuple):
    """What iterations did and what their time was spent on; arrays of shape ``(k,)``, per GPU of the replica.

    The four times sum to the iterations' duration: each operator's time goes to its larger side, launch and host time
    to overhead.
    """

    flop: Floats
    hbm_bytes: Floats
    link_bytes: Floats
    compute_s: Floats
    hbm_s: Floats
    link_s: Floats
    overhead_s: Floats


class CostModel(Protocol):
    """How long one iteration of one replica takes. An object of any class with these methods is a cost model.

    The engine asks for each iteration with prompts. Iterations of decodes alone it takes from planes between some
    contexts it has asked for (``llmsim.engine.pace``), so that their times should not jump between neighbouring ones.
    """

    @property
    def request_s(self) -> float:
        """Time of a request outside the step loop (API server, tokenizer), before it reaches the queue."""
        ...

    def step(self, batch: Batch) -> Step:
        """The time of one iteration."""
        ...

    def account(self, batches: Batch) -> Account:
        """What ``k`` iterations did: each field of ``batches`` is an array of shape ``(k,)``."""
        ...


class Cost(Protocol):
    """What a pool's ``cost`` is: a specification of one of the kinds, or from Python any object with this method."""

    def start(self, deployment: Deployment) -> CostModel:
        """The cost model of one engine."""
        ...
