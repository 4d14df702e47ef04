"""Tables of KV pools that servers logged when they started."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llmsim.deployment import Deployment
from llmsim.hardware import AcceleratorSpec, load_accelerator
from llmsim.model import load_model
from llmsim.validation import names
from llmsim.validation.facts import Fact, Prediction, Reading, Reason, SkippedRowError
from llmsim.validation.rows import Row, number, settings, version, whole

KIND = "KV capacities"
COLUMNS = ("model", "gpu", "reported_kv_tokens")

SEQUENCES_SINCE = (0, 8)
"""Before, vLLM ran at most 256 requests at once by default; since, what its API server sets for the accelerator."""

CHUNKED_ABOVE = 32768
SMALLEST_BUDGET = 2048


@dataclass(frozen=True, slots=True)
class Pool:
    """The KV pool of a deployment."""

    model: str
    accelerator: str
    tensor_parallel_size: int
    quantization: str | None
    gpu_memory_utilization: float
    max_model_len: int | None
    max_num_batched_tokens: int | None
    max_num_seqs: int | None
    engine_version: str
    enforce_eager: bool

    def predict(self, accelerator: AcceleratorSpec | None = None) -> Prediction:
        """Tokens that fit. Raises ScenarioError when the model does not."""
        given: dict[str, Any] = {
            field: getattr(self, field) for field in self.__dataclass_fields__ if field not in ("model", "accelerator")
        }
        given["max_model_len"] = self.max_model_len or "auto"
        deployment = Deployment(
            model=load_model(self.model),
            accelerator=accelerator or load_accelerator(self.accelerator),
            allow_long_max_model_len=True,
            **given,
        )
        ledger = deployment.ledger()
        weights = ledger.weights_bytes / deployment.accelerator.memory_bytes
        return Prediction({"kv_tokens_total": float(ledger.kv_tokens)}, f"weights {weights:.0%} of memory")


def read(rows: Sequence[Row], reading: Reading) -> None:
    """Add the facts of a table to ``reading``."""
    for index, row in enumerate(rows):
        try:
            reading.facts.append(_fact(index, row))
        except SkippedRowError as skipped:
            reading.skip(skipped)


def _fact(index: int, row: Row) -> Fact:
    engine = row.get("engine", "vllm")
    release = version(row.get("engine_version", ""))
    if engine != "vllm" or release is None or "CPU" in row["gpu"] or "EAGLE" in row["model"]:
        raise SkippedRowError(Reason.engine, f"{engine} {row.get('engine_version', '')}")
    if "VL" in row["model"] or "pixtral" in row["model"]:
        raise SkippedRowError(Reason.model, row["model"])
    utilization = number(row, "gpu_memory_utilization")
    value = number(row, "reported_kv_tokens")
    if value is None or utilization is None:
        raise SkippedRowError(Reason.setting if value else Reason.value, "gpu_memory_utilization")
    pool = _pool(row, release, utilization)
    return Fact(
        row=index,
        metric="kv_tokens_total",
        value=value,
        case=pool,
        source=row.get("source_id") or "server logs",
        hardware=pool.accelerator,
        model=pool.model,
        conditions=f"vLLM {release[0]}.{release[1]}, tp {pool.tensor_parallel_size}, utilization {utilization:g}",
    )


def _pool(row: Row, release: tuple[int, int], utilization: float) -> Pool:
    stated = settings(row.get("notes", "").replace("max_num_batched_tokens ", "max_num_batched_tokens="))
    budget, sequences = stated.get("max_num_batched_tokens", ""), stated.get("max_num_seqs", "")
    return Pool(
        model=names.model(row["model"]),
        accelerator=names.accelerator(row["gpu"]),
        tensor_parallel_size=whole(row, "tp") or 1,
        quantization=names.quantization(row.get("quantization", "")),
        gpu_memory_utilization=utilization,
        max_model_len=whole(row, "max_model_len"),
        max_num_batched_tokens=int(budget) if budget.isdecimal() else _profiled(row, release),
        max_num_seqs=int(sequences) if sequences.isdecimal() else 256 if release < SEQUENCES_SINCE else None,
        engine_version=f"{release[0]}.{release[1]}",
        enforce_eager="eager" in row.get("cudagraph", ""),
    )


def _profiled(row: Row, release: tuple[int, int]) -> int | None:
    """Tokens that vLLM before 0.8 computes to measure its activations: the longest request, unless it is chunked.

    Chunked prefill was on for contexts above 32k only (vLLM 0.6, ``engine/arg_utils.py``).
    """
    longest = whole(row, "max_model_len")
    if release >= SEQUENCES_SINCE or longest is None:
        return None
    return max(longest, SMALLEST_BUDGET) if longest <= CHUNKED_ABOVE else SMALLEST_BUDGET
