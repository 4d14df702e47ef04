"""When requests come: gaps of unit mean from an arrival process, at a rate that ``rates`` may change with time.

Separating the two keeps the gaps when the rate changes: twice the rate is the same workload, replayed twice
as fast.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, Self, runtime_checkable

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, WrapValidator

from llmsim.errors import ScenarioError
from llmsim.specification import specification
from llmsim.workload.stamps import spread

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


@specification
class Weibull:
    """Weibull gaps: with a cv above 1 a heavier tail than gamma gaps of the same cv; much production traffic."""

    kind: Literal["weibull"] = "weibull"
    cv: Annotated[float, Field(gt=0.01, lt=100)]
    """Coefficient of variation of the gaps."""

    @property
    def shape(self) -> float:
        """The shape k at which Gamma(1 + 2/k) / Gamma(1 + 1/k)^2 = 1 + cv^2, by bisection."""
        low, high = 0.1, 200.0
        for _ in range(60):
            middle = math.sqrt(low * high)
            log_ratio = math.lgamma(1 + 2 / middle) - 2 * math.lgamma(1 + 1 / middle)
            low, high = (middle, high) if log_ratio > math.log1p(self.cv**2) else (low, middle)
        return high

    def gaps(self, count: int, rng: Generator) -> Floats:
        """The next ``count`` gaps, of mean 1."""
        return weibull_gaps(self.shape, count, rng)


def weibull_gaps(shape: float, count: int, rng: Generator) -> Floats:
    """``count`` Weibull gaps of mean 1."""
    return rng.weibull(shape, count) / math.gamma(1 + 1 / shape)


@specification
class OnOff:
    """Bursts of Poisson arrivals with silence between them (an interrupted Poisson process).

    Both phases last an exponential time, so that the gaps are independent and hyperexponential (Kuczura, "The
    interrupted Poisson process as an overflow process", Bell System Technical Journal 52, 1973).
    """

    kind: Literal["on_off"] = "on_off"
    on_share: Annotated[float, Field(gt=0, lt=1)]
    """Share of time with arrivals; their rate in it is 1 / on_share times the mean."""
    burst_requests: PositiveFloat
    """Mean number of arrivals in a burst."""

    def gaps(self, count: int, rng: Generator) -> Floats:
        """The next ``count`` gaps, of mean 1."""
        rate = 1 / self.on_share
        ends = rate / self.burst_requests
        begins = 1 / (self.burst_requests * (1 - self.on_share))
        total = rate + ends + begins
        root = math.sqrt(total**2 - 4 * rate * begins)
        fast, slow = (total + root) / 2, 2 * rate * begins / (total + root)
        share = (rate - slow) / (fast - slow)
        choice, exponential = rng.random((count, 2)).T
        gaps: Floats = -np.log1p(-exponential) / np.where(choice < share, fast, slow)
        return gaps


@specification
class Replay:
    """The gaps of a trace, scaled to the rate asked for, and repeated when they are used up."""

    kind: Literal["replay"] = "replay"
    path: Path
    """The trace."""
    format: str = "auto"
    """Format of the file; "auto": by its first line."""

    def located(self, folder: Path) -> Self:
        """The same with its path as seen from the working directory. Raises ValueError when there is no file."""
        if not (path := folder / self.path).is_file():
            raise ValueError(f"path = '{path}': there is no such file")
        return replace(self, path=path)

    def gaps(self, count: int, rng: Generator) -> Floats:
        """The next ``count`` gaps, of mean 1 over the trace. Raises ScenarioError when it cannot be read.

        Stamps on a grid are spread over its step.
        """
        from llmsim.workload.readers import arrivals_of

        arrival_ns = spread(arrivals_of(self.path, self.format), None, rng)
        gaps = np.diff(arrival_ns).astype(np.float64)
        if not gaps.sum():
            raise ScenarioError(f"{self.path}: all arrive at once; a replay needs gaps")
        return np.resize(gaps / gaps.mean(), count)


def _own_process(value: Any, validate: Callable[[Any], Any]) -> Any:
    return value if isinstance(value, ArrivalProcess) else validate(value)


Arrivals = Annotated[
    Poisson | Gamma | Weibull | Constant | OnOff | Replay, Field(discriminator="kind"), WrapValidator(_own_process)
]
"""An arrival process: from a file one of these kinds, from Python also any other ``ArrivalProcess``."""


def first_arrivals_s(process: ArrivalProcess, rate_per_s: float, count: int, rng: Generator) -> Floats:
    """The first ``count`` arrivals at a steady rate, in seconds; the first comes one gap after 0."""
    return np.cumsum(process.gaps(count, rng)) / rate_per_s


def arrivals_until_s(process: ArrivalProcess, rate_per_s: float, end_s: float, rng: Generator) -> Floats:
    """All arrivals before ``end_s`` at a steady rate, in seconds."""
    expected = rate_per_s * end_s
    count = int(expected + 4 * expected**0.5) + 16
    begin = rng.bit_generator.state
    while (times := first_arrivals_s(process, rate_per_s, count, rng))[-1] < end_s:
        # Drawn anew from the beginning: a replay does not begin anew in between, and a law draws the same first.
        rng.bit_generator.state = begin
        count *= 2
    return times[: np.searchsorted(times, end_s, side="left")]
