"""Fields of a scenario that take more than their own type: a name, a path, or an object of the user's own."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    PositiveFloat,
    ValidationInfo,
    WithJsonSchema,
)

from llmsim.catalog import entry, suggestion
from llmsim.cluster.router import Router, RouterSpec
from llmsim.cost import Cost, CostSpec
from llmsim.hardware import AcceleratorSpec, load_accelerator
from llmsim.model import ModelSpec, load_model
from llmsim.specification import or_any_with

if TYPE_CHECKING:
    from llmsim.specification import Given
from llmsim.workload import PresetWorkload, Workload, WorkloadSpec

SLO_KEYS = tuple(
    f"{metric}_{statistic}_s"
    for metric in ("ttft", "tpot", "itl", "e2e")
    for statistic in ("mean", "p50", "p90", "p95", "p99")
)
"""Limits an SLO can set."""


def _found_by(load: Callable[[str, Path | None], Any]) -> BeforeValidator:
    def find(value: Any, info: ValidationInfo) -> Any:
        return load(str(value), _folder(info)) if isinstance(value, str | Path) else value

    return BeforeValidator(find)


def _folder(info: ValidationInfo) -> Path | None:
    """Where relative paths start: the folder of the scenario file; None: the working directory."""
    return info.context["folder"] if info.context else None


def _with_source(workload: Any, info: ValidationInfo) -> Any:
    """The workload or cost, if its preset or files are there; its paths as seen from the working directory."""
    if isinstance(workload, PresetWorkload):
        entry("workloads", workload.name)
    if hasattr(workload, "located"):
        return workload.located(_folder(info) or Path())
    return workload


def _known_limit(key: str) -> str:
    if key not in SLO_KEYS:
        near = suggestion(key, SLO_KEYS)
        raise ValueError(f"unknown limit{near or '; allowed: <ttft|tpot|itl|e2e>_<mean|p50|p90|p95|p99>_s'}")
    return key


def _limit(key: str) -> str:
    metric, statistic, _ = key.split("_")
    return f"Most that the {statistic} of {metric.upper()} may be."


def _sorted(limits: dict[str, float]) -> dict[str, float]:
    return dict(sorted(limits.items()))


ABSENT: Any = None
"""The default of a field that may be left out, where type checkers would have its declared type."""

if TYPE_CHECKING:
    Model = Given[ModelSpec | None, ModelSpec | str | Path | None]
    Accelerator = Given[AcceleratorSpec, AcceleratorSpec | str | Path]
    AnyRouter = Router
    AnyCost = Cost
    AnyWorkload = Workload
else:
    Model = Annotated[ModelSpec, _found_by(load_model), WithJsonSchema({"type": "string"})] | None
    """A model: from a file its catalogue name or a path to a config.json, from Python also the specification."""

    Accelerator = Annotated[AcceleratorSpec, _found_by(load_accelerator), WithJsonSchema({"type": "string"})]
    """An accelerator: from a file its catalogue name or a path to a .toml, from Python also the specification."""

    AnyRouter = Annotated[RouterSpec, or_any_with("start")]
    """A router of one of the kinds; from Python any ``Router``."""

    AnyCost = Annotated[CostSpec, or_any_with("start"), AfterValidator(_with_source)]
    """A cost of one of the kinds; from Python any ``Cost``."""

    AnyWorkload = Annotated[WorkloadSpec, or_any_with("generate"), AfterValidator(_with_source)]
    """A workload of one of the kinds; from Python any ``Workload``."""

Slo = Annotated[
    dict[Annotated[str, AfterValidator(_known_limit)], PositiveFloat],
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                key: {"type": "number", "exclusiveMinimum": 0, "description": _limit(key)} for key in SLO_KEYS
            },
        }
    ),
    AfterValidator(_sorted),
]
"""Limits in seconds by name, such as ``ttft_p99_s``, sorted so that their order in a file changes nothing."""
