"""How much of their prompts requests have in common with earlier ones, as statistics of a trace."""

from typing import Self

import numpy as np
from pydantic import Field, NonNegativeFloat, NonNegativeInt, model_validator

from llmsim.specification import specification
from llmsim.workload.arrivals import Floats
from llmsim.workload.readers.prefixes import reused_segments
from llmsim.workload.table import Ints, Segments

_TRIED = 64
"""Rows looked at on each side of where the source should be."""


@specification
class PrefixReuse:
    """Prompts that begin like earlier ones: how far, and how long after.

    Each tuple of numbers holds quantiles at even shares from 0 to 1.
    """

    common_tokens: NonNegativeInt
    """Tokens with which every prompt begins."""
    share_by_prompt: tuple[tuple[NonNegativeFloat, ...], ...] = Field(min_length=1)
    """Share of a prompt that an earlier one, with its answer, began with: for each of equally large groups of
    prompts, shortest first."""
    after_s: tuple[NonNegativeFloat, ...] = Field(min_length=2)
    """Time since the last prompt with these tokens, of prompts that share more than the common ones."""

    @model_validator(mode="after")
    def _shares(self) -> Self:
        if any(len(shares) < 2 or max(shares) > 1 for shares in self.share_by_prompt):
            raise ValueError("share_by_prompt needs two or more shares from 0 to 1 in each group")
        return self

    def segments(
        self,
        arrival_s: Floats,
        prompts: Ints,
        outputs: Ints,
        prompt_shares: Floats,
        reuse_shares: Floats,
        after: Floats,
    ) -> Segments:
        """Prompts of these lengths with so much in common.

        ``prompt_shares`` are the prompts' places among all, ``reuse_shares`` and ``after`` even draws from 0 to 1.
        Sources are sought around the time they should have arrived; where none is long enough the longest serves.
        """
        group = (prompt_shares * len(self.share_by_prompt)).astype(np.int64)
        laws = np.array([_even(shares, reuse_shares) for shares in self.share_by_prompt])
        reused = (laws[group, np.arange(len(prompts))] * prompts).astype(np.int64)
        reused = np.maximum(reused, np.minimum(self.common_tokens, prompts - 1))
        wanted = np.searchsorted(arrival_s, arrival_s - _even(self.after_s, after))
        wanted_rows: list[int] = wanted.tolist()
        known: list[int] = (prompts + outputs).tolist()

        def near(row: int, tokens: int) -> int:
            middle = min(wanted_rows[row], row - 1)
            for step in range(_TRIED):
                for place in (middle - step, middle + step):
                    if 0 <= place < row and known[place] >= tokens:
                        return place
            return max(range(max(0, row - _TRIED), row), key=lambda each: known[each], default=-1)

        return reused_segments(prompts, outputs, reused, near, self.common_tokens)


def _even(values: tuple[float, ...], shares: Floats) -> Floats:
    """The values at these shares."""
    found: Floats = np.interp(shares, np.linspace(0, 1, len(values)), values)
    return found
