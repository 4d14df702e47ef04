"""The physical parameters that measurements of one's own server can move, and how far they may go.

Each is a number that is 0 for the catalogue's accelerator and about 1 where it differs as much as such numbers do
among the catalogue's: shares of peak and launch times by a factor, host times by an amount.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp
from typing import Any

from llmsim.hardware import AcceleratorSpec, EfficiencySpec


@dataclass(frozen=True, slots=True)
class Parameter:
    """One direction in which an accelerator's efficiencies move together."""

    name: str
    fields: tuple[str, ...]
    """Fields of ``EfficiencySpec``."""
    scale: float
    """Of a factor: its logarithm's usual size; of an amount: seconds."""
    is_factor: bool
    low: float = -4.0
    high: float = 4.0
    """Bounds, in units of ``scale``."""

    def moved(self, efficiency: EfficiencySpec, units: float) -> EfficiencySpec:
        """The efficiencies with the parameter ``units`` of its scale away from the catalogue's."""
        change = exp(units * self.scale) if self.is_factor else units * self.scale
        moved = {name: self._value(name, getattr(efficiency, name), change) for name in self.fields}
        return replace(efficiency, **moved)

    def _value(self, name: str, value: Any, change: float) -> Any:
        if isinstance(value, Mapping):
            return {key: self._value(name, each, change) for key, each in value.items()}
        if not self.is_factor:
            return max(0.0, value + change)
        return value * change if name.endswith("_s") else min(1.0, value * change)

    def described(self, efficiency: EfficiencySpec, units: float) -> str:
        """How far it moved, for people."""
        if self.is_factor:
            return f"x {exp(units * self.scale):.3f}"
        before_us, after_us = (
            round(1e6 * sum(getattr(each, name) for name in self.fields), 1)
            for each in (efficiency, self.moved(efficiency, units))
        )
        return f"{before_us * 1e-3:.3g} ms -> {after_us * 1e-3:.3g} ms"


PARAMETERS = (
    Parameter("matrix product compute", ("gemm_compute", "moe_compute"), 0.15, True),
    Parameter("prefill attention compute", ("prefill_attention_compute",), 0.2, True),
    Parameter("weight reading bandwidth", ("gemm_hbm", "moe_hbm"), 0.1, True),
    Parameter("KV reading bandwidth", ("decode_attention_hbm",), 0.1, True),
    Parameter(
        "kernel launches",
        (
            "gemm_launch_s",
            "moe_launch_s",
            "prefill_attention_launch_s",
            "decode_attention_launch_s",
            "elementwise_launch_s",
        ),
        0.4,
        True,
    ),
    Parameter("link bandwidth", ("one_shot_link", "ring_link"), 0.2, True),
    Parameter("link launches", ("one_shot_launch_s", "ring_launch_s"), 0.4, True),
    Parameter("host time of an iteration", ("host_iteration_s",), 1e-3, False, low=-1.0, high=20.0),
    Parameter("host time of a sequence", ("host_sequence_s",), 2e-5, False, low=0.0, high=20.0),
    Parameter("host time of an iteration with prompts", ("host_prefill_iteration_s",), 2e-3, False, low=0.0, high=20.0),
    Parameter("time of a request before the engine", ("request_s",), 2e-2, False, low=-4.0, high=20.0),
)
"""All of them. Scales of factors: about half of what the fitted accelerators of the catalogue differ by."""


def moved(accelerator: AcceleratorSpec, parameters: Sequence[Parameter], units: Sequence[float]) -> AcceleratorSpec:
    """An accelerator with parameters away from its own efficiencies."""
    efficiency = accelerator.efficiency
    for parameter, each in zip(parameters, units, strict=True):
        efficiency = parameter.moved(efficiency, each)
    return replace(accelerator, efficiency=efficiency)
