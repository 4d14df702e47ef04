"""Deployments and batches with defaults, so that a test states only what it is about."""

from dataclasses import replace
from typing import Any

import numpy as np

from llmsim.cost import Account, Batch
from llmsim.deployment import Deployment
from llmsim.hardware import load_accelerator
from llmsim.model import MlaSpec, ModelSpec, MoeSpec, load_model


def a_deployment(model: str | ModelSpec = "llama-3.1-8b", accelerator: str = "h100-sxm", **given: Any) -> Deployment:
    """An engine of one accelerator."""
    spec = load_model(model) if isinstance(model, str) else model
    return Deployment(model=spec, accelerator=load_accelerator(accelerator), **given)


def scaled(deployment: Deployment, **factors: float) -> Deployment:
    """The same on an accelerator with ``flop_per_s``, ``hbm`` or ``link`` that many times as fast."""
    old = deployment.accelerator
    link = replace(old.scale_up, bandwidth_bytes_per_s=old.scale_up.bandwidth_bytes_per_s * factors.get("link", 1.0))
    new = replace(
        old,
        peak_flop_per_s={key: value * factors.get("flop_per_s", 1.0) for key, value in old.peak_flop_per_s.items()},
        hbm_bandwidth_bytes_per_s=old.hbm_bandwidth_bytes_per_s * factors.get("hbm", 1.0),
        scale_up=link,
    )
    return replace(deployment, accelerator=new)


def a_prefill(tokens: int, *, prefix: int = 0, sequences: int = 1, window: int | None = None) -> Batch:
    """``sequences`` prompts that compute ``tokens`` new tokens each after ``prefix`` earlier ones."""
    full, limit = prefix + tokens, window or prefix + tokens
    pairs = (full * (full + 1) - prefix * (prefix + 1)) // 2
    window_pairs = int(np.minimum(np.arange(prefix, full) + 1, limit).sum())
    kept = min(prefix, limit - 1) + tokens
    each = (1, tokens, pairs, full, 0, 0, 1, window_pairs, kept, 0)
    return Batch(*(sequences * value for value in each))


def a_decode(sequences: int, context: int, *, window: int | None = None) -> Batch:
    """``sequences`` sequences that decode one token each at ``context`` tokens, the new one included."""
    kept = min(context, window or context)
    return Batch(0, 0, 0, 0, sequences, sequences * context, sequences, 0, 0, sequences * kept)


def together(*batches: Batch) -> Batch:
    """One iteration that computes all of them."""
    return Batch(*(sum(fields) for fields in zip(*batches, strict=True)))


def stacked(*batches: Batch) -> Batch:
    """Several iterations as arrays, for ``account``."""
    return Batch(*(np.array(fields) for fields in zip(*batches, strict=True)))


def account_of(cost: Any, batch: Batch) -> Account:
    """The account of one iteration, as numbers."""
    return Account(*(float(column[0]) for column in cost.account(stacked(batch))))


def a_latent_model() -> ModelSpec:
    """DeepSeek-V3, as its paper gives it (arXiv 2412.19437, section 4.2)."""
    return ModelSpec(
        name="deepseek-v3",
        num_hidden_layers=61,
        hidden_size=7168,
        num_attention_heads=128,
        num_key_value_heads=128,
        head_dim=128,
        intermediate_size=18432,
        vocab_size=129280,
        max_position_embeddings=163840,
        moe=MoeSpec(
            num_experts=256,
            num_experts_per_tok=8,
            moe_intermediate_size=2048,
            shared_intermediate_size=2048,
            dense_layers=3,
        ),
        mla=MlaSpec(q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128),
        quantization="fp8",
        fp8_block_scales=True,
    )


def a_windowed_model() -> ModelSpec:
    """gpt-oss-20b, as its model card gives it: half its layers see 128 tokens, experts in mxfp4."""
    return ModelSpec(
        name="gpt-oss-20b",
        num_hidden_layers=24,
        hidden_size=2880,
        num_attention_heads=64,
        num_key_value_heads=8,
        head_dim=64,
        intermediate_size=2880,
        vocab_size=201088,
        max_position_embeddings=131072,
        sliding_window=128,
        sliding_window_layers=12,
        attention_bias=True,
        moe=MoeSpec(num_experts=32, num_experts_per_tok=4, moe_intermediate_size=2880),
        quantization="mxfp4",
        quantized_layers="experts",
    )
