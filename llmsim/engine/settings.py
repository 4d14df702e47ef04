"""What a user sets of an engine, by vLLM's argument names: the scheduler, and its KV memory."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field, PositiveInt

from llmsim.engine.orca import OrcaScheduler
from llmsim.engine.policy import Scheduler
from llmsim.engine.static import StaticScheduler
from llmsim.engine.vllm import VllmScheduler
from llmsim.engine.vllm_v0 import VllmV0Scheduler
from llmsim.specification import or_any_with, specification


def _vllm_unless_said(given: Any) -> Any:
    return {"kind": "vllm", **given} if isinstance(given, Mapping) else given


SchedulerSpec = Annotated[
    VllmScheduler | VllmV0Scheduler | OrcaScheduler | StaticScheduler,
    Field(discriminator="kind"),
    BeforeValidator(_vllm_unless_said),
]
"""Every scheduler a scenario file can name; without a kind it is vLLM's."""

if TYPE_CHECKING:
    AnyScheduler = Scheduler
else:
    AnyScheduler = Annotated[SchedulerSpec, or_any_with("resolve")]
    """A scheduler of one of the kinds; from Python any ``Scheduler``."""


@specification
class EngineSpec:
    """One engine: its scheduler and its KV memory."""

    scheduler: AnyScheduler = VllmScheduler()
    """Who runs when."""
    enable_prefix_caching: bool = True
    """Keep the KV of prompts for later ones that begin alike."""
    block_size: PositiveInt = 16
    """Tokens in a KV block."""
    gpu_memory_utilization: float = Field(default=0.92, gt=0, le=1)
    """Share of the accelerator's memory the engine may use."""
