"""The work of rows of measured kernel times, as arrays that a fit can price over and over.

Between ``kernel_steps``, which reads the rows, and ``fit_efficiency``: the simulator's own operators state their work,
so that what is fitted is what is simulated.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from llmsim.cost.layers import attention_operators, experts_touched, stage_operators
from llmsim.cost.operators import Collective, Operator
from llmsim.deployment import layout
from llmsim.hardware import AcceleratorSpec, EfficiencySpec
from tools.kernel_steps import LAYOUT, batch_of, deployment_of

Array = NDArray[np.float64]
NO_WAY = 1e30
"""Bytes of a way of exchange that there is not."""

Work = tuple[Operator | Collective, dict[str, float]]
"""An operator, and the statistics of a batch."""


class Kernels(NamedTuple):
    """Kernels of one class in rows of measurements: arrays of shape ``(rows, kernels)``."""

    runs: Array
    flop: Array
    units: Array
    """Of work; 0 where there is no kernel."""
    tile_flop: Array
    """Of one column more of each inner dimension."""
    padding: Array
    """Of one row of padding in each expert, over ``flop``."""
    hbm_bytes: Array
    decode: Array
    """1 for kernels of decode attention."""
    plain_s: Array
    """Time of what is not fitted; shape ``(rows,)``."""


class Exchanges(NamedTuple):
    """Exchanges in rows of measurements: arrays of shape ``(rows, exchanges)``; bytes are of one run."""

    runs: Array
    one_shot_bytes: Array
    """``NO_WAY`` where there is no such way."""
    ring_bytes: Array
    link_bytes_per_s: Array
    ranks: Array
    dispatch: Array
    """1 for exchanges among data-parallel ranks."""


def neutral(efficiency: EfficiencySpec) -> EfficiencySpec:
    """Efficiencies with which operators state their work: shares of 1, no launches, one row of padding."""
    ones: dict[str, Any] = {
        key: dict.fromkeys(getattr(efficiency, key), 1.0)
        for key in ("gemm_compute", "gemm_hbm", "moe_compute", "moe_hbm")
    }
    zeros = {key: dict.fromkeys(getattr(efficiency, key), 0.0) for key in ("gemm_launch_s", "moe_launch_s")}
    plain = dict.fromkeys(("prefill_attention_launch_s", "decode_attention_launch_s", "ring_launch_s"), 0.0)
    shares = dict.fromkeys(("prefill_attention_compute", "decode_attention_hbm", "one_shot_link", "ring_link"), 1.0)
    return replace(
        efficiency,
        **ones,
        **zeros,
        **plain,
        **shares,
        gemm_tile_rows={},
        gemm_sustained={},
        gemm_tile_depth=dict.fromkeys(efficiency.gemm_compute, 1.0),
        moe_tile_depth=1.0,
        moe_padding_tokens=1.0,
        moe_imbalance_per_log2_ep=0.0,
        link_contention_exponent=0.0,
        dispatch_launch_s=0.0,
    )


def work(rows: pd.DataFrame, accelerator: AcceleratorSpec) -> list[list[Work]]:
    """The operators of each row with the statistics of its batch."""
    found = {}
    for _, group in rows.groupby(LAYOUT):
        deployment = deployment_of(next(group.itertuples()), accelerator)
        (stage,) = layout.stages(deployment)
        listed = [*stage_operators(deployment, stage).on_tokens, *stage_operators(deployment, stage).on_sampled]
        for layers, (prefill, decode) in attention_operators(deployment, stage):
            listed += [replace(each, count=layers) for each in (*prefill, *decode)]
        for row in group.itertuples():
            statistics = {name: float(value) for name, value in batch_of(row)._asdict().items()}
            tokens = statistics["prefill_tokens"] + statistics["decode_sequences"]
            statistics |= {"tokens": tokens, "experts": float(experts_touched(deployment, tokens))}
            found[row.Index] = [(each, statistics) for each in listed if statistics[each.rows] > 0]
    return [found[index] for index in rows.index]


def kernels(listed: list[list[Any]], names: tuple[str, ...], plain: tuple[str, ...] = ()) -> Kernels:
    """The kernels of some names; those of ``plain`` names, and launches stated by the operators, are not fitted."""
    rows, not_fitted = [], []
    for operators in listed:
        chosen = [(each, statistics) for each, statistics in operators if each.name in names]
        rows.append(np.array([_numbers(each, statistics) for each, statistics in chosen]).reshape(-1, 7))
        not_fitted.append(sum(each.launch_s * each.count for each, _ in chosen))
        not_fitted[-1] += sum(_streamed_s(each, values) for each, values in operators if each.name in plain)
    padded = np.zeros((len(rows), max(len(row) for row in rows), 7))
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return Kernels(*np.moveaxis(padded, 2, 0), plain_s=np.array(not_fitted))


def _numbers(each: Operator, statistics: dict[str, float]) -> tuple[float, ...]:
    units, read = statistics[each.work], statistics[each.read]
    hbm_bytes = each.fixed_bytes + each.read_bytes * read + each.row_bytes * statistics[each.rows]
    padding = each.padding_flop * read / ((each.flop + each.tile_flop) * units) if each.padding_flop else 0.0
    decode = float(each.name == "decode_attention")
    return each.count, each.flop * units, units, each.tile_flop * units, padding, hbm_bytes, decode


def _streamed_s(each: Operator, statistics: dict[str, float]) -> float:
    return each.count * each.row_bytes * statistics[each.rows] / each.bytes_per_s


def exchanges(listed: list[list[Any]], rows: pd.DataFrame, accelerator: AcceleratorSpec) -> Exchanges:
    """What op_comm is made of: all-reduces, and dispatch and combination of expert parallelism."""
    found = np.zeros((len(listed), 3, 6))
    found[:, :, 3:5] = 1, 2
    for index, (operators, row) in enumerate(zip(listed, rows.itertuples(), strict=True)):
        chosen = [(each, values) for each, values in operators if each.name in ("all_reduce", "dispatch", "combine")]
        ranks = max(int(row.tp), int(row.moe_ep))
        rate = accelerator.scale_up.bandwidth_bytes_per_s
        for position, (each, statistics) in enumerate(chosen):
            count = statistics[each.rows]
            once = NO_WAY if each.name != "all_reduce" else each.one_shot_bytes * count
            found[index, position] = (each.count, once, each.ring_bytes * count, rate, ranks, each.name != "all_reduce")
    return Exchanges(*np.moveaxis(found, 2, 0))
