"""When requests come: gaps of unit mean from an arrival process, warped by a rate that may change with time.

Separating the two keeps the gaps when the rate changes: twice the rate is the same workload, replayed twice
as fast.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import Field, NonNegativeFloat, PositiveFloat, WrapValidator, field_validator

from llmsim.specification import specification

Floats = NDArray[np.float64]


@runtime_checkable
class ArrivalProcess(Protocol):
    """A law of the gaps between arrivals, at a rate of one."""

    def gaps(self, count: int, rng: Generator) -> Floats:
        """The next ``count`` gaps, of mean 1, in units of the mean gap."""


@specification
class Poisson:
    """Independent arrivals: exponential gaps, as from very many users who do not know of each other."""

    kind: Literal["poisson"] = "poisson"

    def gaps(self, count: int, rng: Generator) -> Floats:
        """The next ``count`` gaps, of mean 1."""
        return rng.standard_exponential(count)


@specification
class Gamma:
    """Gamma gaps: burstier than Poisson with a cv above 1, more regular below."""

    kind: Literal["gamma"] = "gamma"
    cv: PositiveFloat
    """Coefficient of variation of the gaps; vLLM's ``--burstiness`` is 1 / cv**2."""

    def gaps(self, count: int, rng: Generator) -> Floats:
        """The next ``count`` gaps, of mean 1."""
        shape = self.cv**-2
        return rng.standard_gamma(shape, count) / shape


@specification
class Constant:
    """Equal gaps."""

    kind: Literal["constant"] = "constant"

    def gaps(self, count: int, rng: Generator) -> Floats:
        """The next ``count`` gaps, all 1."""
        return np.ones(count)


def _own_process(value: Any, validate: Callable[[Any], Any]) -> Any:
    return value if isinstance(value, ArrivalProcess) else validate(value)


Arrivals = Annotated[Poisson | Gamma | Constant, Field(discriminator="kind"), WrapValidator(_own_process)]
"""An arrival process: from a file one of these kinds, from Python also any other ``ArrivalProcess``."""


@specification
class RateProfile:
    """A rate that changes in steps: a day, a ramp, a burst, a pause."""

    step_s: PositiveFloat
    relative: tuple[NonNegativeFloat, ...]
    """Rate in each step as a multiple of the client's rate; repeated when time goes on."""

    @field_validator("relative")
    @classmethod
    def _some_arrivals(cls, relative: tuple[float, ...]) -> tuple[float, ...]:
        if max(relative, default=0.0) <= 0:
            raise ValueError("at least one step must have a rate above 0")
        return relative

    def integral(self, time_s: float) -> float:
        """How long a steady rate takes for the arrivals until ``time_s``: the relative rate's integral."""
        passed, edges = self._passed()
        periods, rest = divmod(time_s, edges[-1])
        return float(periods * passed[-1] + np.interp(rest, edges, passed))

    def warp(self, steady_s: Floats) -> Floats:
        """When the arrivals come that a steady rate has at ``steady_s``: the inverse of ``integral``."""
        passed, edges = self._passed()
        periods, rest = np.divmod(steady_s, passed[-1])
        warped: Floats = periods * edges[-1] + np.interp(rest, passed, edges)
        return warped

    def _passed(self) -> tuple[Floats, Floats]:
        """Integral of the relative rate at the edges of one period's steps, and these edges."""
        passed = np.concatenate(([0.0], np.cumsum(self.relative) * self.step_s))
        return passed, self.step_s * np.arange(len(passed), dtype=np.float64)


STEADY = RateProfile(step_s=1.0, relative=(1.0,))


def first_arrivals_s(process: ArrivalProcess, rate_per_s: float, count: int, rng: Generator) -> Floats:
    """The first ``count`` arrivals at a steady rate, in seconds; the first comes one gap after 0."""
    return np.cumsum(process.gaps(count, rng)) / rate_per_s


def arrivals_until_s(process: ArrivalProcess, rate_per_s: float, end_s: float, rng: Generator) -> Floats:
    """All arrivals before ``end_s`` at a steady rate, in seconds."""
    expected = rate_per_s * end_s
    gaps = process.gaps(int(expected + 4 * expected**0.5) + 16, rng)
    while (times := np.cumsum(gaps) / rate_per_s)[-1] < end_s:
        gaps = np.concatenate((gaps, process.gaps(len(gaps), rng)))
    return times[: np.searchsorted(times, end_s, side="left")]
