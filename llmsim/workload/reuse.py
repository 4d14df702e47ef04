"""How much of their prompts requests have in common with earlier ones, as statistics of a trace."""

from typing import Annotated, Self

import numpy as np
from pydantic import Field, NonNegativeFloat, NonNegativeInt, model_validator

from llmsim.specification import specification
from llmsim.workload.arrivals import Floats
from llmsim.workload.readers.prefixes import reused_segments
from llmsim.workload.table import Ints, Segments

Share = Annotated[float, Field(ge=0, le=1)]
_TRIED = 64
"""Rows looked at on each side of where the source should be."""


@specification
class PrefixReuse:
    """Prompts that begin like earlier ones: how many, how far, and how long after.

    Groups are of equally many prompts, shortest first; quantiles are at even shares from 0 to 1.
    """

    common_tokens: NonNegativeInt
    """Tokens with which every prompt begins."""
    reusing: tuple[Share, ...] = Field(min_length=1)
    """For each group the share of prompts that an earlier one, with its answer, shares more with than that."""
    reused_share: tuple[tuple[Share, ...], ...]
    """For each group quantiles of how much of such a prompt is shared."""
    after_s: tuple[NonNegativeFloat, ...] = Field(min_length=2)
    """Quantiles of the time since the last prompt with these tokens."""

    @model_validator(mode="after")
    def _groups(self) -> Self:
        if len(self.reused_share) != len(self.reusing):
            raise ValueError(f"{len(self.reusing)} groups of reusing but {len(self.reused_share)} of reused_share")
        if any(len(shares) < 2 for shares in self.reused_share):
            raise ValueError("reused_share needs two or more quantiles in each group")
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
        Sources are sought around the time they should have arrived, each continued by one prompt, as in a
        conversation; where none is long enough the longest of the last ones serves.
        """
        reused = self._reused_tokens(prompts, prompt_shares, reuse_shares)
        wanted = np.searchsorted(arrival_s, arrival_s - _even(self.after_s, after))
        wanted_rows: list[int] = wanted.tolist()
        known: list[int] = (prompts + outputs).tolist()
        taken = [False] * len(prompts)

        def near(row: int, tokens: int) -> int:
            if tokens <= self.common_tokens:
                return -1
            middle = min(wanted_rows[row], row - 1)
            for step in range(_TRIED):
                for place in (middle - step, middle + step):
                    if 0 <= place < row and known[place] >= tokens and not taken[place]:
                        taken[place] = True
                        return place
            return max(range(max(0, row - _TRIED), row), key=lambda each: known[each], default=-1)

        return reused_segments(prompts, outputs, reused, near, self.common_tokens)

    def _reused_tokens(self, prompts: Ints, prompt_shares: Floats, reuse_shares: Floats) -> Ints:
        """How many tokens of each prompt an earlier one has."""
        group = (prompt_shares * len(self.reusing)).astype(np.int64)
        reusing = np.array(self.reusing)[group]
        draws = 1 - (1 - reuse_shares) / np.maximum(reusing, 1e-12)
        laws = np.array([_even(shares, draws.clip(min=0.0)) for shares in self.reused_share])
        deep = (laws[group, np.arange(len(prompts))] * prompts).astype(np.int64)
        common = np.minimum(self.common_tokens, prompts - 1)
        return np.maximum(np.where(draws > 0, deep, 0), common)


def _even(values: tuple[float, ...], shares: Floats) -> Floats:
    """The values at these shares."""
    found: Floats = np.interp(shares, np.linspace(0, 1, len(values)), values)
    return found
