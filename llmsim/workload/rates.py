"""How a rate changes with time: a day, a ramp, a spike, or as in a trace.

A profile multiplies a client's rate. It turns the arrivals of a steady rate into its own by the inverse of its
integral, which keeps their number and their law of gaps.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat, field_validator, model_validator

from llmsim.errors import ScenarioError
from llmsim.specification import specification
from llmsim.units import NS_PER_S
from llmsim.workload.arrivals import Floats


@specification
class Steps:
    """A rate that changes in steps: a day, a burst, a pause."""

    kind: Literal["steps"] = "steps"
    step_s: PositiveFloat
    """Length of a step."""
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


STEADY = Steps(step_s=1.0, relative=(1.0,))


@dataclass(frozen=True, slots=True)
class Curve:
    """A relative rate of straight lines between points; two points of one time make a jump.

    After the last point it begins anew, or keeps the last value.
    """

    times_s: Floats
    relative: Floats
    repeats: bool

    def integral(self, time_s: float) -> float:
        """The integral from 0 to ``time_s``."""
        passed, end_s = self._passed(), self.times_s[-1]
        periods, rest = divmod(time_s, end_s) if self.repeats else (0.0, min(time_s, end_s))
        at = max(int(np.searchsorted(self.times_s, rest, side="left")) - 1, 0)
        first, last = self.relative[at : at + 2]
        begin_s, finish_s = self.times_s[at : at + 2]
        rate = first + (last - first) * (rest - begin_s) / (finish_s - begin_s)
        within = (first + rate) / 2 * (rest - begin_s)
        beyond = 0.0 if self.repeats else max(time_s - end_s, 0.0) * self.relative[-1]
        return float(periods * passed[-1] + passed[at] + within + beyond)

    def warp(self, steady_s: Floats) -> Floats:
        """The inverse of ``integral``: within a line the root of r x + s x^2 / 2 = d."""
        passed, end_s = self._passed(), self.times_s[-1]
        periods, rest = np.divmod(steady_s, passed[-1]) if self.repeats else (np.zeros_like(steady_s), steady_s)
        at = np.clip(np.searchsorted(passed, rest, side="right") - 1, 0, len(passed) - 2)
        span_s = np.diff(self.times_s)[at]
        first, rise = self.relative[at], np.diff(self.relative)[at]
        slope = np.divide(rise, span_s, out=np.zeros_like(rise), where=span_s > 0)
        left = np.minimum(rest, passed[-1]) - passed[at]
        speed = first + np.sqrt(np.maximum(first**2 + 2 * slope * left, 0.0))
        inside = self.times_s[at] + np.divide(2 * left, speed, out=np.zeros_like(left), where=speed > 0)
        beyond = np.maximum(rest - passed[-1], 0.0) / self.relative[-1] if not self.repeats else 0.0
        warped: Floats = periods * end_s + inside + beyond
        return warped

    def _passed(self) -> Floats:
        """The integral at each point."""
        parts = (self.relative[1:] + self.relative[:-1]) / 2 * np.diff(self.times_s)
        return np.concatenate(([0.0], np.cumsum(parts)))


@specification
class Ramp:
    """Straight lines between points, the last value kept: load that grows, as in a stepped load test."""

    kind: Literal["ramp"] = "ramp"
    times_s: tuple[NonNegativeFloat, ...]
    """From 0, increasing; the same time twice makes a jump."""
    relative: tuple[NonNegativeFloat, ...]
    """One for each time, as a multiple of the client's rate; the last is above 0."""

    @model_validator(mode="after")
    def _points(self) -> Self:
        if len(self.times_s) != len(self.relative) or len(self.times_s) < 2:
            raise ValueError(f"{len(self.times_s)} times_s and {len(self.relative)} relative; give 2 or more of both")
        if self.times_s[0] != 0 or np.any(np.diff(self.times_s) < 0) or self.times_s[-1] == 0:
            raise ValueError(f"times_s are {self.times_s}; they must begin at 0 and increase")
        if self.relative[-1] == 0:
            raise ValueError("the last rate is kept for ever and must be above 0")
        return self

    def integral(self, time_s: float) -> float:
        """As ``Steps.integral``."""
        return self._curve().integral(time_s)

    def warp(self, steady_s: Floats) -> Floats:
        """As ``Steps.warp``."""
        return self._curve().warp(steady_s)

    def _curve(self) -> Curve:
        return Curve(np.array(self.times_s), np.array(self.relative), repeats=False)


@specification
class Diurnal:
    """A day: a cosine around the client's rate."""

    kind: Literal["diurnal"] = "diurnal"
    amplitude: Annotated[float, Field(ge=0, le=1)]
    """How far the rate rises above and falls below its mean, as a share of it."""
    peak_s: NonNegativeFloat = 0.0
    """When it is highest."""
    period_s: PositiveFloat = 86_400.0
    """From one peak to the next."""

    def integral(self, time_s: float) -> float:
        """As ``Steps.integral``."""
        return self._curve().integral(time_s)

    def warp(self, steady_s: Floats) -> Floats:
        """As ``Steps.warp``."""
        return self._curve().warp(steady_s)

    def _curve(self) -> Curve:
        """1,440 lines, one a minute of a day: within 2e-6 of the cosine."""
        turn = np.linspace(0.0, 1.0, 1_441)
        relative = 1 + self.amplitude * np.cos(2 * np.pi * (turn - self.peak_s / self.period_s))
        return Curve(turn * self.period_s, relative, repeats=True)


@specification
class Spikes:
    """A steady rate with sudden, equal bursts: a batch job on the hour, a push message."""

    kind: Literal["spikes"] = "spikes"
    factor: Annotated[float, Field(gt=0)]
    """Rate in a spike as a multiple of the client's rate, which holds between them."""
    duration_s: PositiveFloat
    """How long a spike lasts."""
    every_s: PositiveFloat
    """A spike ends each period of this length."""

    @model_validator(mode="after")
    def _apart(self) -> Self:
        if self.duration_s >= self.every_s:
            raise ValueError(f"duration_s is {self.duration_s:g}; allowed is less than every_s, {self.every_s:g}")
        return self

    def integral(self, time_s: float) -> float:
        """As ``Steps.integral``."""
        return self._curve().integral(time_s)

    def warp(self, steady_s: Floats) -> Floats:
        """As ``Steps.warp``."""
        return self._curve().warp(steady_s)

    def _curve(self) -> Curve:
        begins_s = self.every_s - self.duration_s
        times_s = np.array([0.0, begins_s, begins_s, self.every_s])
        return Curve(times_s, np.array([1.0, 1.0, self.factor, self.factor]), repeats=True)


@specification
class TraceRate:
    """The rate of a trace in steps, relative to its mean."""

    kind: Literal["trace"] = "trace"
    path: Path
    """The trace."""
    format: str = "auto"
    """Format of the file; "auto": by its first line."""
    step_s: PositiveFloat = 60.0
    """Length of the steps in which its arrivals are counted."""

    def located(self, folder: Path) -> Self:
        """The same with its path as seen from the working directory. Raises ValueError when there is no file."""
        if not (path := folder / self.path).is_file():
            raise ValueError(f"path = '{path}': there is no such file")
        return replace(self, path=path)

    def integral(self, time_s: float) -> float:
        """As ``Steps.integral``. Raises ScenarioError when the trace cannot be read or is shorter than a step."""
        return self._steps().integral(time_s)

    def warp(self, steady_s: Floats) -> Floats:
        """As ``Steps.warp``. Raises ScenarioError as ``integral``."""
        return self._steps().warp(steady_s)

    def _steps(self) -> Steps:
        from llmsim.workload.readers import arrivals_of

        arrival_ns = arrivals_of(self.path, self.format)
        per_step = np.bincount(arrival_ns // round(self.step_s * NS_PER_S))
        per_step = per_step[: int(arrival_ns[-1] / NS_PER_S / self.step_s)]
        if not len(per_step):
            raise ScenarioError(f"{self.path}: the trace is shorter than a step of {self.step_s:g} s")
        return Steps(step_s=self.step_s, relative=tuple((per_step / per_step.mean()).tolist()))


RateProfile = Annotated[Steps | Ramp | Diurnal | Spikes | TraceRate, Field(discriminator="kind")]
"""How a client's rate changes with time."""
