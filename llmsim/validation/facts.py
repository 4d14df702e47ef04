"""What is compared: one measured value, the case that must be simulated for it, and why a row is left out.

Readers of tables turn rows into ``Fact`` or raise ``SkippedRowError``; ``compare`` runs each distinct case once and
scores the facts that ask for it.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol


class Reason(StrEnum):
    """Every reason for which a row is not scored."""

    accelerator = "accelerator not in the catalogue"
    model = "model not in the catalogue"
    metric = "metric or statistic that is not simulated"
    value = "no value, or not a number"
    setting = "a setting that decides the value is missing"
    load = "kind of load that is not simulated"
    engine = "engine that is not simulated"
    dtype = "data type that is not simulated"
    parallelism = "parallel layout that is not simulated"
    disaggregated = "prefill and decode on separate replicas"
    speculative = "speculative decoding"
    multi_step = "several decode steps between two scheduling decisions"
    memory = "model or batch does not fit in the memory that is assumed"
    floor = "fixes a host time that is taken from this table"


class SkippedRowError(Exception):
    """A row that is left out, and why."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a case gives: values in SI units by ``metric_statistic``, and what bound them."""

    values: dict[str, float]
    diagnosis: str = ""


class Case(Protocol):
    """Something to simulate. Equal cases are simulated once; all fields are plain and hashable."""

    def predict(self, accelerator: Any = None) -> Prediction:
        """Simulate it, on ``accelerator`` (an ``AcceleratorSpec``) instead of the catalogue's where given.

        Raises:
            ScenarioError: when the model does not fit.
        """
        ...


@dataclass(frozen=True, slots=True)
class Fact:
    """One measured value."""

    row: int
    """Of its table, from 0."""
    metric: str
    """``metric_statistic``, a key of ``Prediction.values``."""
    value: float
    """Seconds, tokens, or a rate a second."""
    case: Case
    source: str
    hardware: str
    model: str
    conditions: str
    """The load in a few words."""


@dataclass(slots=True)
class Reading:
    """A table that was read: its facts, and how many rows were left out for each reason."""

    file: str
    kind: str
    rows: int
    facts: list[Fact] = field(default_factory=list)
    skipped: dict[Reason, list[str]] = field(default_factory=dict)
    """Details of the rows left out, by reason; one entry a row."""

    def skip(self, skipped: SkippedRowError) -> None:
        """Count a row that is left out."""
        self.skipped.setdefault(skipped.reason, []).append(skipped.detail)
