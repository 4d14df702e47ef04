"""Iterations to ask a cost model about: prompts, decodes, both at once; and what such an iteration does."""

from typing import NamedTuple

import numpy as np

from llmsim.cost import Account, Batch, CostModel


class Spent(NamedTuple):
    """What one iteration does and spends, as an ``Account`` of numbers."""

    flop: float
    hbm_bytes: float
    link_bytes: float
    compute_s: float
    hbm_s: float
    link_s: float
    overhead_s: float

    @classmethod
    def of(cls, account: Account) -> "Spent":
        """An account of one iteration."""
        return cls(*(float(column[0]) for column in account))


def spent(cost: CostModel, batch: Batch) -> Spent:
    """What one iteration of each GPU does and spends its time on."""
    return Spent.of(cost.account(Batch(*(np.array([field]) for field in batch))))


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


def together(*batches: Batch) -> Batch:
    """The iteration that computes all of these at once: a chunk of a prompt beside decodes, say."""
    return Batch(*map(sum, zip(*batches, strict=True)))


def _pairs(tokens: int, window: int | None) -> int:
    """Query-key pairs of causal attention from the first token on."""
    near = tokens if window is None else min(tokens, window)
    return near * (near + 1) // 2 + (tokens - near) * near
