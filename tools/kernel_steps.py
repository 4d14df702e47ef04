"""Rows of a table of measured kernel times as deployments and batches of the simulator.

The table (``kernel_step_times.csv``): sums of measured kernel times of one forward pass, by system, engine, model and
layout, computed with aiconfigurator-core 0.12.0; host time, sampling and queueing are not in it. ``fit_efficiency``
fits on it, the tests of the cost model compare with it.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from llmsim.closed_form import decodes, prompts
from llmsim.cost import AnalyticCost, Batch
from llmsim.deployment import Deployment
from llmsim.hardware import AcceleratorSpec
from llmsim.model import ModelSpec, load_model
from llmsim.validation.kernel_steps import kernels_only

ACCELERATORS = {
    "a100_sxm": "a100-sxm-80gb",
    "b200_sxm": "b200-sxm",
    "gb200": "gb200",
    "h100_sxm": "h100-sxm",
    "h200_sxm": "h200-sxm",
    "l40s": "l40s",
    "rtx_pro_6000_server": "rtx-pro-6000",
}
"""Catalogue names of the table's systems."""

MODELS = {
    "meta-llama/Meta-Llama-3.1-8B": "llama-3.1-8b",
    "meta-llama/Meta-Llama-3.1-70B": "llama-3.1-70b",
    "Qwen/Qwen3-30B-A3B": "qwen3-30b-a3b",
    "mistralai/Mixtral-8x7B-v0.1": "mixtral-8x7b",
    "openai/gpt-oss-20b": "gpt-oss-20b",
}
"""Catalogue names of the table's models."""

LAYOUT = ["model", "gemm_quant", "kv_quant", "tp", "attn_dp", "moe_ep"]
"""Columns that rows of one deployment share."""


def read_steps(path: Path, backend: str = "vllm") -> pd.DataFrame:
    """The rows of one engine, with ``kind`` (dense or moe) and ``tokens`` (computed in the iteration)."""
    rows = pd.read_csv(path)
    rows = rows[rows.backend == backend].reset_index(drop=True)
    mixed = rows.phase == "mixed"
    tokens = np.where(mixed, rows.batch + rows.new_tokens_per_seq, rows.batch * rows.new_tokens_per_seq)
    return rows.assign(kind=np.where(rows.moe_quant.isna(), "dense", "moe"), tokens=tokens)


def deployment_of(row: Any, accelerator: AcceleratorSpec) -> Deployment:
    """The deployment of a row, without host time and CUDA graphs, its contexts being all alike."""
    model = _model(row)
    return Deployment(
        model=replace(model, fp8_block_scales=row.gemm_quant == "fp8_block"),
        accelerator=kernels_only(accelerator),
        quantization="fp8" if str(row.gemm_quant).startswith("fp8") else None,
        kv_cache_dtype="fp8" if row.kv_quant == "fp8" else "auto",
        tensor_parallel_size=int(row.tp),
        data_parallel_size=int(row.attn_dp),
        enable_expert_parallel=int(row.moe_ep) > 1,
        enforce_eager=True,
    )


def batch_of(row: Any) -> Batch:
    """A row's batch: ``mixed`` is one prompt of ``new_tokens_per_seq`` beside ``batch`` decodes."""
    sequences, new, context = int(row.batch), int(row.new_tokens_per_seq), int(row.context)
    window = _model(row).sliding_window
    if row.phase == "decode":
        return decodes(sequences, context, window)
    if row.phase == "prefill":
        return prompts(sequences, new, context - new, window)
    together = zip(prompts(1, new, 0, window), decodes(sequences, context, window), strict=True)
    return Batch(*(sum(fields) for fields in together))


def errors(rows: pd.DataFrame, accelerator: AcceleratorSpec) -> pd.Series:
    """The model's time over the measured one, less 1, for rows of one system."""
    found = pd.Series(index=rows.index, dtype=float)
    for _, group in rows.groupby(LAYOUT):
        cost = AnalyticCost().start(deployment_of(next(group.itertuples()), accelerator))
        for row in group.itertuples():
            found[row.Index] = cost.step(batch_of(row)).occupancy_s * 1e3 / row.latency_ms - 1
    return found


def _model(row: Any) -> ModelSpec:
    return load_model(MODELS[row.model])
