"""Which engine a row of measured values ran on: what it states, and a documented default for what it does not.

Defaults: vLLM before 0.14 schedules while the accelerator waits, later ones ahead (release notes of 0.14.0), unless
the row says otherwise; 0.9 of the memory; KV in the type of the activations. TensorRT-LLM admits only what fits with
its whole answer (its capacity scheduler GUARANTEED_NO_EVICT), at most 2048 requests and 8192 tokens an iteration
(defaults of trtllm-build), with KV in fp8 where weights have 8 bits or fewer. MLPerf names the type of the weights a
submitter starts from; submissions with TensorRT-LLM serve them in fp8, as 70B in 16 bit does not fit into the 96 GB of
a GH200. They are tuned: of the layouts the one with the most throughput by the closed form is taken.
"""

from dataclasses import replace
from functools import cache
from typing import Any, Literal

from llmsim.closed_form import saturated
from llmsim.cost import AnalyticCost
from llmsim.model import load_model
from llmsim.validation import names
from llmsim.validation.facts import Reason, SkippedRowError
from llmsim.validation.rows import Row, number, settings, version, whole
from llmsim.validation.served import Engine

ASYNC_SINCE = (0, 14)
TRTLLM_SEQS, TRTLLM_TOKENS = 2048, 8192
TRTLLM_FREE_SHARE = 0.9
"""Of the memory that weights leave free (kv_cache_free_gpu_mem_fraction)."""
MEMORY_SHARE = 0.9
V0_BEFORE = (0, 8)


def engine_of(row: Row, request_tokens: float) -> Engine:
    """The engine of a row; ``request_tokens``: of prompt and answer together, which some engines reserve.

    Raises:
        SkippedRowError: for what is not in the catalogue or not simulated.
    """
    text = row.get("scheduler", "")
    _refuse(text)
    given: dict[str, Any] = {
        "model": names.model(row["model"]),
        "accelerator": names.accelerator(row["hardware"]),
        "quantization": _quantization(row),
        "kv_cache_dtype": _kv_dtype(row),
        "gpu_memory_utilization": MEMORY_SHARE,
    }
    given |= _layout(row, given, request_tokens)
    kind = row.get("engine", "").lower()
    if kind.startswith("trtllm"):
        return _no_evict(Engine(**given), request_tokens)
    if not kind.startswith(("vllm", "sglang")):
        raise SkippedRowError(Reason.engine, kind)
    return Engine(**given, **_vllm(row, settings(text)))


def _refuse(text: str) -> None:
    low = text.lower()
    if "disaggregated" in low:
        raise SkippedRowError(Reason.disaggregated, text)
    if "eagle" in low or "mtp" in low or "speculat" in low:
        raise SkippedRowError(Reason.speculative, text)
    steps = settings(text).get("num_scheduler_steps", "1")
    if "multi-step" in low or (steps.isdecimal() and int(steps) > 1):
        raise SkippedRowError(Reason.multi_step, text)


def _is_mlperf(row: Row) -> bool:
    return row.get("engine", "").startswith("trtllm") and not row.get("tp", "")


def _kv_dtype(row: Row) -> Literal["auto", "fp8"]:
    """As stated; TensorRT-LLM's recipes for 8-bit and 4-bit weights quantize KV too."""
    stated = row.get("kv_dtype", "")
    recipe = row.get("engine", "").startswith("trtllm") and stated in ("", "unstated", "auto")
    quantized = _is_mlperf(row) or row.get("weight_dtype", "") in ("fp8", "nvfp4")
    return "fp8" if stated.startswith("fp8") or (recipe and quantized) else "auto"


def _quantization(row: Row) -> str | None:
    """Of the row's weights; a model that is published quantized keeps its own type."""
    own = load_model(names.model(row["model"])).quantization
    stated = "fp8" if _is_mlperf(row) else row.get("weight_dtype", "")
    return None if own == "mxfp4" else names.quantization(stated)


def _layout(row: Row, given: dict[str, Any], request_tokens: float) -> dict[str, Any]:
    """Ranks and replicas; where only the number of accelerators is stated, those with the most throughput."""
    tensor, experts = whole(row, "tp"), whole(row, "ep") or 1
    pipeline, data = whole(row, "pp") or 1, whole(row, "dp") or 1
    if pipeline > 1 or data > 1:
        raise SkippedRowError(Reason.parallelism, f"pp {pipeline}, dp {data}")
    gpus = whole(row, "n_gpus") or tensor
    if gpus is None:
        raise SkippedRowError(Reason.setting, "n_gpus")
    if tensor is None:
        tensor = _best(given, gpus, request_tokens)
    elif experts > 1 and tensor * experts == gpus:
        tensor = gpus
    return {
        "tensor_parallel_size": tensor,
        "replicas": max(1, gpus // tensor),
        "enable_expert_parallel": experts > 1,
    }


def _best(given: dict[str, Any], gpus: int, request_tokens: float) -> int:
    """The ranks of an engine that give the accelerators together the most throughput, by the closed form."""
    rates: dict[int, float] = {}
    for ranks in (1, 2, 4, 8):
        if gpus % ranks:
            continue
        try:
            engine = _no_evict(Engine(**given, tensor_parallel_size=ranks), request_tokens)
        except SkippedRowError:
            continue
        deployment = engine.pool().deployment()
        prompt = round(request_tokens / 2)
        cost = AnalyticCost().start(deployment)
        found = saturated(cost, deployment, prompt, round(request_tokens) - prompt, engine.max_num_seqs or 1)
        rates[ranks] = gpus / ranks / found.request_s
    if not rates:
        raise SkippedRowError(Reason.memory, f"{given['model']} on {gpus} {given['accelerator']}")
    return max(rates, key=rates.__getitem__)


def _vllm(row: Row, stated: dict[str, str]) -> dict[str, Any]:
    """Settings of vLLM: from the text of the row, else by the engine's version."""
    release = version(row.get("engine_version", ""))
    eager = "2023" in row.get("engine_version", "")
    scheduler: Literal["vllm", "vllm_v0"] = "vllm"
    if stated.get("chunked_prefill") == "False" and release is not None and release < V0_BEFORE:
        scheduler = "vllm_v0"
    ahead = release is None or release >= ASYNC_SINCE or "async scheduling" in row.get("scheduler", "")
    return {
        "scheduler": scheduler,
        "max_num_seqs": _integer(stated, "max_num_seqs"),
        "max_num_batched_tokens": _integer(stated, "max_num_batched_tokens"),
        "enable_prefix_caching": stated.get("prefix_caching") != "False",
        "async_scheduling": ahead and not eager,
        "enforce_eager": eager,
        **({} if release is None else {"engine_version": f"{release[0]}.{release[1]}"}),
        "sampling": "top_p" if "saturating" in row.get("load_kind", "") else "greedy",
        "num_gpu_blocks": _blocks(row, stated),
    }


def _blocks(row: Row, stated: dict[str, str]) -> int | None:
    """KV blocks of the tokens stated; where only some layers have a window a log's tokens are not blocks times their
    size, and the pool is computed."""
    tokens, model = stated.get("kv_tokens", ""), load_model(names.model(row["model"]))
    if not tokens.isdecimal() or model.mixes_windows:
        return None
    return int(tokens) // 16


def _integer(stated: dict[str, str], key: str) -> int | None:
    return int(stated[key]) if stated.get(key, "").isdecimal() else None


@cache
def _no_evict(engine: Engine, request_tokens: float) -> Engine:
    """TensorRT-LLM: as many requests at once as fit with their whole answers."""
    limited = replace(
        engine,
        enable_prefix_caching=False,
        max_num_seqs=TRTLLM_SEQS,
        max_num_batched_tokens=TRTLLM_TOKENS,
        gpu_memory_utilization=1.0,
    )
    try:
        deployment = limited.pool().deployment()
        free = 1 - deployment.ledger().weights_bytes / deployment.accelerator.memory_bytes
        limited = replace(limited, gpu_memory_utilization=1 - (1 - TRTLLM_FREE_SHARE) * free)
        tokens = limited.pool().deployment().ledger().kv_tokens
    except ValueError as error:
        raise SkippedRowError(Reason.memory, str(error)) from None
    return replace(limited, max_num_seqs=max(1, min(TRTLLM_SEQS, int(tokens / request_tokens))))


def conditions(row: Row) -> str:
    """The load of a row in a few words."""
    parts = [
        f"{word} {value:g}"
        for column, word in (
            ("tp", "tp"),
            ("concurrency", "concurrency"),
            ("batch_size", "batch"),
            ("rate_rps", "rate"),
            ("input_tokens", "in"),
            ("output_tokens", "out"),
        )
        if (value := number(row, column)) is not None
    ]
    return ", ".join(parts)
