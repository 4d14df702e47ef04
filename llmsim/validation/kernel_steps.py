"""Tables of step times: the kernels of one forward pass, or whole steps of an engine."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from llmsim.closed_form import decodes, prompts
from llmsim.cost import AnalyticCost, Batch
from llmsim.deployment import Deployment
from llmsim.hardware import AcceleratorSpec, load_accelerator
from llmsim.model import load_model
from llmsim.validation import names
from llmsim.validation.facts import Fact, Prediction, Reading, Reason, SkippedRowError
from llmsim.validation.rows import Row, number, required, whole

KIND = "step times"
COLUMNS = ("model", "phase", "batch", "context", "latency_ms")

SYSTEMS = {
    "a100_sxm": "a100-sxm-80gb",
    "rtx_pro_6000_server": "rtx-pro-6000",
}
"""Names of systems that the catalogue's own do not resemble."""

NOT_OF_KERNELS = (
    "host_iteration_s",
    "host_sequence_s",
    "host_prefill_iteration_s",
    "host_synchronous_s",
    "host_eager_layer_s",
    "request_s",
    "decode_attention_blocks",
)
"""Efficiency parameters that sums of kernels are without: time of the host, and contexts of unequal lengths."""


def kernels_only(accelerator: AcceleratorSpec) -> AcceleratorSpec:
    """An accelerator whose iterations take as long as their kernels do one after another."""
    none: dict[str, Any] = dict.fromkeys(NOT_OF_KERNELS, 0)
    return replace(accelerator, efficiency=replace(accelerator.efficiency, **none))


@dataclass(frozen=True, slots=True)
class Step:
    """One iteration of a deployment."""

    model: str
    accelerator: str
    phase: str
    """prefill, decode, or mixed: one prompt beside ``batch`` decodes."""
    batch: int
    new_tokens: int
    context: int
    tensor_parallel_size: int = 1
    data_parallel_size: int = 1
    expert_parallel_size: int = 1
    quantization: str | None = None
    block_scales: bool = False
    kv_cache_dtype: str = "auto"
    kernels_only: bool = True
    """Without the host and without CUDA graphs."""

    def predict(self, accelerator: AcceleratorSpec | None = None) -> Prediction:
        """Price it. Raises ScenarioError for a layout that does not divide the model."""
        cost = AnalyticCost().start(self._deployment(accelerator or load_accelerator(self.accelerator)))
        batch = self._batch()
        account = cost.account(Batch(*([value] for value in batch)))._asdict()
        parts = {name.removesuffix("_s"): float(part[0]) for name, part in account.items() if name.endswith("_s")}
        busiest = max(parts, key=parts.__getitem__)
        seconds = cost.step(batch).occupancy_s
        return Prediction(
            {"step_mean": seconds, f"{self.phase}_step_mean": seconds}, busiest.replace("overhead", "launches")
        )

    def _deployment(self, accelerator: AcceleratorSpec) -> Deployment:
        model = load_model(self.model)
        if self.kernels_only:
            accelerator = kernels_only(accelerator)
        layout: dict[str, Any] = {
            "tensor_parallel_size": self.tensor_parallel_size,
            "data_parallel_size": self.data_parallel_size,
            "enable_expert_parallel": self.expert_parallel_size > 1,
            "quantization": self.quantization,
            "kv_cache_dtype": self.kv_cache_dtype,
        }
        scaled = replace(model, fp8_block_scales=self.block_scales)
        return Deployment(model=scaled, accelerator=accelerator, enforce_eager=self.kernels_only, **layout)

    def _batch(self) -> Batch:
        window = load_model(self.model).sliding_window
        if self.phase == "decode":
            return decodes(self.batch, self.context, window)
        if self.phase == "prefill":
            return prompts(self.batch, self.new_tokens, self.context - self.new_tokens, window)
        together = zip(prompts(1, self.new_tokens, 0, window), decodes(self.batch, self.context, window), strict=True)
        return Batch(*(sum(fields) for fields in together))


def read(rows: Sequence[Row], reading: Reading) -> None:
    """Add the facts of a table to ``reading``."""
    for index, row in enumerate(rows):
        try:
            reading.facts.append(_fact(index, row))
        except SkippedRowError as skipped:
            reading.skip(skipped)


def _fact(index: int, row: Row) -> Fact:
    step = step_of(row)
    value = number(row, "latency_ms")
    if value is None or value <= 0:
        raise SkippedRowError(Reason.value, row["latency_ms"])
    return Fact(
        row=index,
        metric=f"{step.phase}_step_mean",
        value=value * 1e-3,
        case=step,
        source=row.get("source_id") or " ".join((row.get("backend") or "", "kernels")).strip(),
        hardware=step.accelerator,
        model=step.model,
        conditions=f"tp {step.tensor_parallel_size}, batch {step.batch}, new {step.new_tokens}, context {step.context}",
    )


def step_of(row: Row) -> Step:
    """The iteration of a row. Raises SkippedRowError."""
    phase = row["phase"]
    if phase not in ("decode", "prefill", "mixed"):
        raise SkippedRowError(Reason.load, phase)
    system = row.get("system") or row.get("hardware", "")
    weights = row.get("gemm_quant") or row.get("weight_dtype", "")
    model = names.model(row["model"])
    dtype = names.quantization(weights)
    return Step(
        model=model,
        accelerator=names.accelerator(SYSTEMS.get(system, system)),
        phase=phase,
        batch=round(required(row, "batch")),
        new_tokens=whole(row, "new_tokens_per_seq") or 1,
        context=round(required(row, "context")),
        tensor_parallel_size=whole(row, "tp") or 1,
        data_parallel_size=whole(row, "attn_dp") or 1,
        expert_parallel_size=whole(row, "moe_ep") or 1,
        quantization=dtype,
        block_scales=weights == "fp8_block",
        kv_cache_dtype="fp8" if "fp8" in (row.get("kv_quant") or "") else "auto",
        kernels_only=bool(row.get("op_gemm")),
    )
