"""How long prompts and outputs are: laws that draw whole numbers of tokens, at least 1."""

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal, Protocol, Self, runtime_checkable

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt, WrapValidator, model_validator

from llmsim.specification import specification
from llmsim.workload.table import Ints

_Z99 = 2.3263478740408408
"""The 99 % quantile of the standard normal law."""


@runtime_checkable
class LengthLaw(Protocol):
    """A law of lengths."""

    def draw(self, count: int, rng: Generator) -> Ints:
        """The next ``count`` lengths, whole numbers >= 1."""


@specification
class Fixed:
    """Always the same length."""

    kind: Literal["fixed"] = "fixed"
    tokens: PositiveInt

    def draw(self, count: int, rng: Generator) -> Ints:
        """``count`` times the same length."""
        return np.full(count, self.tokens, np.int64)


@specification
class Uniform:
    """Every length from ``low`` to ``high``, both included, is equally likely."""

    kind: Literal["uniform"] = "uniform"
    low: PositiveInt
    high: PositiveInt

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.high < self.low:
            raise ValueError(f"high is {self.high}, below low, {self.low}")
        return self

    def draw(self, count: int, rng: Generator) -> Ints:
        """The next ``count`` lengths."""
        return rng.integers(self.low, self.high, count, endpoint=True)


@specification
class Lognormal:
    """A long tail, given by two numbers that a dashboard shows."""

    kind: Literal["lognormal"] = "lognormal"
    mean: Annotated[float, Field(ge=1)]
    p99: PositiveFloat
    """99 % of lengths are at most this: more than the mean, at most 14 times as much."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if not self.mean < self.p99 <= 14 * self.mean:
            raise ValueError(f"p99 is {self.p99:g}; allowed is more than the mean, {self.mean:g}, to 14 times as much")
        return self

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm: the smaller root of log(p99/mean) = z sigma - sigma^2/2."""
        return _Z99 - math.sqrt(_Z99**2 - 2 * math.log(self.p99 / self.mean))

    def draw(self, count: int, rng: Generator) -> Ints:
        """The next ``count`` lengths, rounded to whole numbers."""
        sigma = self.sigma
        lengths = rng.lognormal(math.log(self.mean) - sigma**2 / 2, sigma, count)
        return np.maximum(np.rint(lengths), 1).astype(np.int64)


@specification
class Quantiles:
    """A measured law: lengths at some quantiles, straight lines between them."""

    kind: Literal["quantiles"] = "quantiles"
    shares: tuple[float, ...]
    """Increasing from 0 to 1: 0.5 is the median."""
    tokens: tuple[PositiveInt, ...]
    """One for each share: the length that this share of all lengths does not exceed."""

    @model_validator(mode="after")
    def _monotone(self) -> Self:
        if len(self.shares) != len(self.tokens):
            raise ValueError(f"{len(self.shares)} shares but {len(self.tokens)} tokens; each share needs its length")
        if self.shares[:1] != (0,) or self.shares[-1:] != (1,) or np.any(np.diff(self.shares) <= 0):
            raise ValueError(f"shares are {self.shares}; they must increase from 0 to 1")
        if np.any(np.diff(self.tokens) < 0):
            raise ValueError(f"tokens are {self.tokens}; they must not decrease")
        return self

    def at(self, shares: NDArray[np.float64]) -> Ints:
        """The lengths at these shares, rounded to whole numbers."""
        return np.rint(np.interp(shares, self.shares, self.tokens)).astype(np.int64)

    def draw(self, count: int, rng: Generator) -> Ints:
        """The next ``count`` lengths."""
        return self.at(rng.random(count))


def _own_law(value: Any, validate: Callable[[Any], Any]) -> Any:
    return value if isinstance(value, LengthLaw) else validate(value)


Lengths = Annotated[Fixed | Uniform | Lognormal | Quantiles, Field(discriminator="kind"), WrapValidator(_own_law)]
"""A law of lengths: from a file one of these kinds, from Python also any other ``LengthLaw``."""
