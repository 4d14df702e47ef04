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

Floats = NDArray[np.float64]
_Z99 = 2.3263478740408408
"""The 99 % quantile of the standard normal law."""


@runtime_checkable
class LengthLaw(Protocol):
    """A law of lengths."""

    def draw(self, count: int, rng: Generator) -> Ints:
        """The next ``count`` lengths, whole numbers >= 1."""


@runtime_checkable
class QuantileLaw(LengthLaw, Protocol):
    """A law of lengths that can be correlated with another."""

    def at(self, shares: Floats) -> Ints:
        """The lengths that these shares of all lengths do not exceed."""


@specification
class Fixed:
    """Always the same length."""

    kind: Literal["fixed"] = "fixed"
    tokens: PositiveInt
    """The length."""

    def draw(self, count: int, rng: Generator) -> Ints:
        """``count`` times the same length."""
        return np.full(count, self.tokens, np.int64)

    def at(self, shares: Floats) -> Ints:
        """The same length at every share."""
        return np.full(len(shares), self.tokens, np.int64)


@specification
class Uniform:
    """Every length from ``low`` to ``high``, both included, is equally likely."""

    kind: Literal["uniform"] = "uniform"
    low: PositiveInt
    """The shortest."""
    high: PositiveInt
    """The longest."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.high < self.low:
            raise ValueError(f"high is {self.high}, below low, {self.low}")
        return self

    def draw(self, count: int, rng: Generator) -> Ints:
        """The next ``count`` lengths."""
        return rng.integers(self.low, self.high, count, endpoint=True)

    def at(self, shares: Floats) -> Ints:
        """The lengths at these shares."""
        return np.minimum(self.low + shares * (self.high - self.low + 1), self.high).astype(np.int64)


@specification
class Lognormal:
    """A long tail, given by two numbers that a dashboard shows."""

    kind: Literal["lognormal"] = "lognormal"
    mean: Annotated[float, Field(ge=1)]
    """Mean of the law."""
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
        return _whole(rng.lognormal(math.log(self.mean) - sigma**2 / 2, sigma, count))

    def at(self, shares: Floats) -> Ints:
        """The lengths at these shares."""
        return _whole(self.quantile(shares))

    def quantile(self, shares: Floats) -> Floats:
        """The lengths at these shares, not rounded."""
        from scipy.special import ndtri

        sigma = self.sigma
        lengths: Floats = np.exp(math.log(self.mean) - sigma**2 / 2 + sigma * ndtri(shares))
        return lengths


@specification
class ParetoTail:
    """A lognormal law whose longest lengths follow a power law instead, joined without a jump.

    ServeGen (Xiang et al., 2025) finds prompts of production traffic to be such a mixture.
    """

    kind: Literal["pareto_tail"] = "pareto_tail"
    mean: Annotated[float, Field(ge=1)]
    """Mean of the lognormal law, without the tail."""
    p99: PositiveFloat
    """99 % quantile of the lognormal law, without the tail."""
    tail_share: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """Share of lengths in the tail."""
    alpha: PositiveFloat
    """Exponent: the share of lengths beyond x falls as x**-alpha; the smaller the longer the tail."""
    maximum: PositiveInt
    """Longer ones are cut to this."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        start = float(self._body().quantile(np.array([1 - self.tail_share]))[0])
        if self.maximum <= start:
            raise ValueError(f"maximum is {self.maximum}; the tail begins at {start:.0f} and needs more")
        return self

    def draw(self, count: int, rng: Generator) -> Ints:
        """The next ``count`` lengths."""
        return self.at(rng.random(count))

    def at(self, shares: Floats) -> Ints:
        """The lengths at these shares."""
        start = 1 - self.tail_share
        body = self._body().quantile(np.minimum(shares, start))
        stretch = (self.tail_share / np.clip(1 - shares, 1e-300, self.tail_share)) ** (1 / self.alpha)
        return _whole(np.minimum(body * stretch, self.maximum))

    def _body(self) -> Lognormal:
        return Lognormal(mean=self.mean, p99=self.p99)


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

    def at(self, shares: Floats) -> Ints:
        """The lengths at these shares, rounded to whole numbers."""
        return np.rint(np.interp(shares, self.shares, self.tokens)).astype(np.int64)

    def draw(self, count: int, rng: Generator) -> Ints:
        """The next ``count`` lengths."""
        return self.at(rng.random(count))


def correlated(
    count: int, prompts: QuantileLaw, outputs: QuantileLaw, rank_correlation: float, rng: Generator
) -> tuple[Ints, Ints]:
    """The next ``count`` pairs of lengths whose ranks correlate (Spearman's rho), by a Gaussian copula.

    The normals below it correlate with 2 sin(pi rho / 6) (Kruskal, "Ordinal measures of association", JASA 1958).
    Where a law has few distinct lengths their ties lower the correlation.
    """
    from scipy.special import ndtr

    rho = 2 * math.sin(math.pi * rank_correlation / 6)
    first, second = rng.standard_normal((count, 2)).T
    return prompts.at(ndtr(first)), outputs.at(ndtr(rho * first + math.sqrt(1 - rho**2) * second))


def _whole(lengths: Floats) -> Ints:
    """Rounded to whole numbers of at least 1."""
    return np.maximum(np.rint(lengths), 1).astype(np.int64)


def _own_law(value: Any, validate: Callable[[Any], Any]) -> Any:
    return value if isinstance(value, LengthLaw) else validate(value)


Lengths = Annotated[
    Fixed | Uniform | Lognormal | ParetoTail | Quantiles, Field(discriminator="kind"), WrapValidator(_own_law)
]
"""A law of lengths: from a file one of these kinds, from Python also any other ``LengthLaw``."""
