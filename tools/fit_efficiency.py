"""Fit the efficiencies of accelerators on measured kernel times, and show how far off models are that were left out.

``python -m tools.fit_efficiency kernel_step_times.csv`` prints the table: each model's steps, predicted with what was
fitted on the other models. ``--write`` puts what is fitted on all of them into the catalogue's [efficiency] tables.

Each class of kernels is fitted by itself on its own measured column, by least squares of the logarithm (soft L1), each
row weighted by the square root of the class's part of the step. Parameters are bounded to what is physical: no share
above 1, no negative time.
"""

import argparse
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from llmsim.cost.operators import SUSTAINED_FROM
from llmsim.hardware import AcceleratorSpec, EfficiencySpec, load_accelerator
from tools.kernel_steps import ACCELERATORS, errors, read_steps
from tools.kernel_work import Array, exchanges, kernels, neutral, work

CATALOGUE = Path(__file__).parent.parent / "llmsim" / "catalog" / "accelerators"
STREAMED_HBM = 0.8
"""Share of HBM bandwidth of norms and activations, assumed; where measured products of the chip reach more, that."""
TILE_ROWS = (128, 256)
"""Tiles of products to choose from, in tokens. That real products come in tiles the tables hardly show: their counts of
tokens are powers of two, and interpolated between."""
EXPERTS_FP8 = 0.75
"""Compute share of fp8 experts over that of 16-bit ones: assumed, no rows."""


SOURCE = """
Fitted by tools/fit_efficiency.py on sums of measured vLLM kernel times (operator tables of aiconfigurator-core 0.12.0
on PyPI, system {system}, vLLM {version}) against the peaks above, each class of kernels by itself; padding, tiles and
imbalance of experts on all systems together. relative_error: mean over models left out of the fit. Assumed, not fitted:
int8 and fp4 as fp8, or as bfloat16 where there is no fp8; float32 as bfloat16; experts in fp8 at 0.75 of the bfloat16
compute share; fp8_block (128x128 scales) takes its compute share from roofline fits of the same tables, the rest from
fp8; norms and activations at 0.8 of HBM bandwidth, or what products reach if that is more. mxfp4: weights only, the
product is in bfloat16 and the share is of that peak. Host times: judgement. With CUDA graphs a decode step waits 0-0.4
ms for the host; at low load TTFT exceeds the prefill's kernels by 10-90 ms in vLLM servers (public load curve of
kubernetes-sigs/inference-perf, Llama-3.1-8B on H100: 31 ms at 1 request/s, of which about 9 ms are kernels).
"""
EXPERT_BOUNDS = [(0.1, 0.5, 0.9), (0.3, 0.75, 0.95), (0.0, 25.0, 80.0)]
"""Lowest, first guess and highest of an expert kernel's compute share, HBM share and launch in us."""


class Fit(NamedTuple):
    """Parameters, and what is left of the errors."""

    values: Array
    cost: float


def fit(predict: Callable[[Array], Array], measured_s: Array, step_s: Array, bounds: list[tuple[float, ...]]) -> Fit:
    """The parameters, from the best of their (lowest, first guess, highest) and two guesses between."""
    low, guess, high = (np.array(each) for each in zip(*bounds, strict=True))
    weight = np.sqrt(measured_s / step_s)
    best = None
    for start in (guess, (2 * guess + low) / 3, (2 * guess + high) / 3):
        found = least_squares(
            lambda values: weight * np.log(np.maximum(predict(values), 1e-9) / measured_s),
            np.clip(start, low + 1e-9, high - 1e-9),
            bounds=(low, high),
            loss="soft_l1",
            f_scale=0.05,
            x_scale=np.maximum(guess, 1e-3),
        )
        best = found if best is None or found.cost < best.cost else best
    return Fit(np.array(best.x), float(best.cost))


def fit_accelerator(rows: pd.DataFrame, accelerator: AcceleratorSpec, experts: Array) -> EfficiencySpec:
    """The efficiencies fitted on rows of one system; what they do not show stays as it is. ``experts``: see
    ``pooled_experts``."""
    efficiency = accelerator.efficiency
    stated = replace(accelerator, efficiency=neutral(efficiency))
    for dtype, chosen in rows.groupby(rows.gemm_quant):
        efficiency = _fit_products(str(dtype), chosen, stated, efficiency)
    streamed = round(max(STREAMED_HBM, efficiency.gemm_hbm["bfloat16"]), 3)
    stated = replace(stated, efficiency=replace(stated.efficiency, elementwise_hbm=streamed))
    efficiency = replace(efficiency, elementwise_hbm=streamed)
    efficiency = _fit_attention(rows, stated, efficiency)
    efficiency = _fit_experts(rows, accelerator, efficiency, experts)
    return _fit_exchanges(rows[rows.op_comm > 0], stated, efficiency)


def _fit_products(dtype: str, rows: pd.DataFrame, stated: AcceleratorSpec, was: EfficiencySpec) -> EfficiencySpec:
    have = kernels(work(rows, stated), ("qkv", "o", "up", "down"), ("quantize",))
    peak, hbm = stated.peak_flop_per_s[dtype], stated.hbm_bandwidth_bytes_per_s
    units = np.maximum(have.units, 1)

    def predict(values: Array, tile: int) -> Array:
        compute, sustained, memory, launch_us, depth = values
        tiled = np.where(units > tile, np.ceil(units / tile) * tile, units)
        slowed = tiled + np.maximum(tiled - SUSTAINED_FROM, 0) * (1 / sustained - 1)
        flop = (have.flop + have.tile_flop * depth) * slowed / units
        each = np.hypot(flop / (peak * compute), have.hbm_bytes / (hbm * memory)) + launch_us * 1e-6
        return np.asarray((have.runs * each).sum(axis=1) + have.plain_s)

    bounds = [(0.2, 0.7, 1.0), (0.7, 0.9, 1.0), (0.4, 0.8, 0.95), (0.5, 4.0, 15.0), (0.0, 100.0, 512.0)]
    fits = {tile: fit(partial(predict, tile=tile), *_measured(rows, "op_gemm"), bounds) for tile in TILE_ROWS}
    tile = min(fits, key=lambda each: fits[each].cost)
    compute, sustained, memory, launch_us, depth = fits[tile].values
    copies = {"bfloat16": ("bfloat16", "float32"), "fp8": ("fp8", "int8", "fp4")}[dtype]
    if "fp8" not in stated.peak_flop_per_s:
        copies = (*copies, "int8")
    block = ("fp8_block",) if dtype == "fp8" else ()
    present = {key: 0.0 for key in copies if key in was.gemm_compute}
    return replace(
        was,
        gemm_compute=_with(was.gemm_compute, copies, compute),
        gemm_hbm=_with(was.gemm_hbm, copies + block, memory),
        gemm_launch_s=_with(was.gemm_launch_s, copies + block, launch_us * 1e-6),
        gemm_sustained=was.gemm_sustained | _with(present, copies, sustained),
        gemm_tile_rows=was.gemm_tile_rows | dict.fromkeys(present, tile),
        gemm_tile_depth=was.gemm_tile_depth | _with(present, copies, depth),
    )


def _fit_attention(rows: pd.DataFrame, stated: AcceleratorSpec, was: EfficiencySpec) -> EfficiencySpec:
    have = kernels(work(rows, stated), ("prefill_attention", "decode_attention"), ("rope",))
    peak, hbm = stated.peak_flop_per_s["bfloat16"], stated.hbm_bandwidth_bytes_per_s

    def predict(values: Array) -> Array:
        compute, memory, prefill_us, decode_us = values
        launch = np.where(have.decode > 0, decode_us, prefill_us) * 1e-6
        each = np.hypot(have.flop / (peak * compute), have.hbm_bytes / (hbm * memory)) + launch
        return (have.runs * each).sum(axis=1) + have.plain_s

    bounds = [(0.2, 0.6, 0.9), (0.4, 0.8, 0.95), (0.0, 18.0, 60.0), (0.0, 12.0, 60.0)]
    compute, memory, prefill_us, decode_us = fit(predict, *_measured(rows, "op_attn"), bounds).values
    return replace(
        was,
        prefill_attention_compute=_round(compute),
        decode_attention_hbm=_round(memory),
        prefill_attention_launch_s=_round(prefill_us * 1e-6),
        decode_attention_launch_s=_round(decode_us * 1e-6),
    )


def pooled_experts(rows: pd.DataFrame, accelerators: dict[str, AcceleratorSpec]) -> Array:
    """(padding, depth of tiles, imbalance) of 16-bit experts, the same on all systems: what the kernels' tiling and the
    routing of the measurements have in common. Each system has its own shares and launch beside."""
    groups = [
        (accelerators[str(system)], chosen) for system, chosen in rows[rows.moe_quant == "bfloat16"].groupby("system")
    ]
    parts = [_experts_time(chosen, accelerator) for accelerator, chosen in groups]
    measured = [_measured(chosen, "op_moe") for _, chosen in groups]

    def predict(values: Array) -> Array:
        own = values[3:].reshape(-1, 3)
        return np.concatenate([part(own[index], values[:3]) for index, part in enumerate(parts)])

    bounds = [(0.0, 30.0, 64.0), (0.0, 100.0, 1000.0), (0.0, 0.9, 2.0)] + EXPERT_BOUNDS * len(parts)
    return fit(predict, *(np.concatenate(column) for column in zip(*measured, strict=True)), bounds).values[:3]


def _fit_experts(
    rows: pd.DataFrame, accelerator: AcceleratorSpec, was: EfficiencySpec, shared: Array
) -> EfficiencySpec:
    """Shares and launch of experts in 16 bit and with 4-bit weights, which are as 16-bit ones where no rows are."""
    padding, depth, imbalance = map(_round, shared)
    was = replace(was, moe_padding_tokens=padding, moe_tile_depth=depth, moe_imbalance_per_log2_ep=imbalance)
    for quantization, keys in (("bfloat16", ("bfloat16", "float32", "mxfp4")), ("w4a16_mxfp4", ("mxfp4",))):
        chosen = rows[rows.moe_quant == quantization]
        if not chosen.empty:
            predict = _experts_time(chosen, accelerator)
            found = fit(
                lambda values, of=predict: of(values, shared), *_measured(chosen, "op_moe"), EXPERT_BOUNDS
            ).values
            was = _with_experts(was, keys, *found)
    eight = tuple(key for key in ("fp8", "fp8_block", "int8", "fp4") if key in was.moe_compute)
    compute = EXPERTS_FP8 * was.moe_compute["bfloat16"]
    return _with_experts(was, eight, compute, was.moe_hbm["bfloat16"], was.moe_launch_s["bfloat16"] * 1e6)


def _with_experts(
    was: EfficiencySpec, keys: tuple[str, ...], compute: float, memory: float, launch_us: float
) -> EfficiencySpec:
    return replace(
        was,
        moe_compute=_with(was.moe_compute, keys, compute),
        moe_hbm=_with(was.moe_hbm, keys, memory),
        moe_launch_s=_with(was.moe_launch_s, keys, launch_us * 1e-6),
    )


def _experts_time(rows: pd.DataFrame, accelerator: AcceleratorSpec) -> Callable[[Array, Array], Array]:
    """Seconds of the experts in each row, of (compute share, HBM share, launch in us) and what all systems share."""
    stated = replace(accelerator, efficiency=neutral(accelerator.efficiency))
    have = kernels(work(rows, stated), ("experts",))
    peak, hbm = accelerator.peak_flop_per_s["bfloat16"], accelerator.hbm_bandwidth_bytes_per_s
    spread = np.log2(np.maximum(rows.moe_ep.to_numpy(float), 1))[:, None]

    def seconds(own: Array, shared: Array) -> Array:
        (compute, memory, launch_us), (padding, depth, imbalance) = own, shared
        flop = (have.flop + have.tile_flop * depth) * (1 + imbalance * spread + padding * have.padding)
        each = np.hypot(flop / (peak * compute), have.hbm_bytes / (hbm * memory)) + launch_us * 1e-6
        return np.asarray((have.runs * each).sum(axis=1))

    return seconds


def _fit_exchanges(rows: pd.DataFrame, stated: AcceleratorSpec, was: EfficiencySpec) -> EfficiencySpec:
    switched = stated.scale_up.kind == "nvlink"
    adds = switched and stated.scale_up.bandwidth_bytes_per_s >= 450e9
    stated = replace(stated, efficiency=replace(stated.efficiency, all_reduce_in_switch=adds))
    have = exchanges(work(rows, stated), rows, stated)

    def predict(values: Array) -> Array:
        once_us, once, ring_us, ring, dispatch_us, contention = values
        rate = have.link_bytes_per_s / (have.ranks / 2) ** contention
        at_once = have.one_shot_bytes / (rate * once) + once_us * 1e-6
        launch = np.where(have.dispatch > 0, dispatch_us, ring_us) * 1e-6
        return (have.runs * np.minimum(at_once, have.ring_bytes / (rate * ring) + launch)).sum(axis=1)

    contention = (0.0, 1e-9, 1e-6) if switched else (0.0, 0.8, 2.0)
    bounds = [(1.0, 6.0, 40.0), (0.05, 0.4, 1.0), (2.0, 12.0, 60.0), (0.05, 0.5, 1.0), (2.0, 15.0, 60.0), contention]
    once_us, once, ring_us, ring, dispatch_us, exponent = fit(predict, *_measured(rows, "op_comm"), bounds).values
    return replace(
        was,
        one_shot_launch_s=_round(once_us * 1e-6),
        one_shot_link=_round(once),
        ring_launch_s=_round(ring_us * 1e-6),
        ring_link=_round(ring),
        all_reduce_in_switch=adds,
        dispatch_launch_s=_round(dispatch_us * 1e-6),
        link_contention_exponent=0.0 if switched else _round(exponent),
    )


def _measured(rows: pd.DataFrame, column: str) -> tuple[Array, Array]:
    return rows[column].to_numpy() / 1e3, rows.latency_ms.to_numpy() / 1e3


def _with(table: dict[str, float], keys: tuple[str, ...], value: float) -> dict[str, float]:
    return {**table, **{key: _round(value) for key in keys if key in table}}


def _round(value: float) -> float:
    return 0.0 if value < 1e-9 else float(f"{value:.4g}")


def left_out(rows: pd.DataFrame, accelerators: dict[str, AcceleratorSpec]) -> pd.Series:
    """Errors of each model's rows with efficiencies fitted on the other models."""
    parts = []
    for model in rows.model.unique():
        others = rows[rows.model != model]
        experts = pooled_experts(others, accelerators)
        for system, chosen in rows[rows.model == model].groupby("system"):
            accelerator = accelerators[str(system)]
            fitted = fit_accelerator(others[others.system == system], accelerator, experts)
            parts.append(errors(chosen, replace(accelerator, efficiency=fitted)))
    return pd.concat(parts)


def write(name: str, version: str, system: str, efficiency: EfficiencySpec, error: float) -> None:
    """Write the [efficiency] table, the last of a catalogue file."""
    path = CATALOGUE / f"{name}.toml"
    text = " ".join(SOURCE.format(system=system, version=version).split())
    lines = ["[efficiency]", "source = '''", *wrap(text + "'''", 108, break_on_hyphens=False)]
    stated = {**asdict(efficiency), "relative_error": error}
    left_to_default = ("source", "borrowed_from", "host_prefill_iteration_s", "host_eager_layer_s")
    lines += [f"{key} = {_toml(value)}" for key, value in stated.items() if key not in left_to_default]
    path.write_text(path.read_text().split("[efficiency]\n")[0] + "\n".join(lines) + "\n")


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_toml(each)}' for key, each in value.items())} }}" if value else "{}"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def main() -> None:
    """Print the table of models left out, and write the fit on all of them where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--write", action="store_true", help="write the catalogue")
    parser.add_argument("--system", action="append", help="only this system; repeatable")
    options = parser.parse_args()
    rows = read_steps(options.table)
    rows = rows[rows.system.isin(options.system or list(ACCELERATORS))]
    accelerators = {system: load_accelerator(ACCELERATORS[system]) for system in rows.system.unique()}
    rows["left_out"] = left_out(rows, accelerators)
    experts = pooled_experts(rows, accelerators)
    for system, chosen in rows.groupby("system"):
        accelerator = accelerators[str(system)]
        fitted = fit_accelerator(chosen, accelerator, experts)
        rows.loc[chosen.index, "fitted"] = errors(chosen, replace(accelerator, efficiency=fitted))
        if options.write:
            error = float(f"{rows.loc[chosen.index, 'left_out'].abs().mean():.2g}")
            write(accelerator.name, chosen.version.iloc[0], str(system), fitted, error)
    report(rows)


def report(rows: pd.DataFrame) -> None:
    """The table: medians of absolute errors by system, and over systems."""
    for column, title in (("left_out", "models left out of the fit"), ("fitted", "models of the fit")):
        sizes = rows.assign(size=rows[column].abs())
        table = sizes.pivot_table(index="system", columns=["kind", "phase"], values="size", aggfunc="median")
        table[("all", "dense")] = sizes[sizes.kind == "dense"].groupby("system")["size"].median()
        table[("all", "moe")] = sizes[sizes.kind == "moe"].groupby("system")["size"].median()
        table.loc["median of systems"] = table.median()
        print(f"\nMedian absolute error, {title}\n{(100 * table).round(1).to_string()}")
    models = rows.assign(size=rows.left_out.abs()).pivot_table(
        index="model", columns="system", values="size", aggfunc="median"
    )
    print(f"\nBy model, left out of the fit\n{(100 * models).round(1).to_string()}")


if __name__ == "__main__":
    main()
