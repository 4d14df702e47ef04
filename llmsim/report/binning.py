"""Many rows to a few points: time bins that keep means, totals and extremes. Used by the figures.

A run of a million iterations must draw as light as one of a thousand, so each figure has a fixed number of
bins and every function here is one vectorised pass over sorted rows.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def time_edges(start_s: float, end_s: float, bins: int) -> Floats:
    """Edges of equal bins over a time span, shape ``(bins + 1,)``; a span of no length gets a short one."""
    return np.linspace(start_s, max(end_s, start_s + 1e-6), bins + 1)


def amount_per_bin(start_s: Floats, end_s: Floats, amounts: Floats, edges_s: Floats) -> Floats:
    """Amounts (>= 0) spread evenly over their own time spans, summed per bin.

    ``start_s`` and ``end_s`` have shape ``(n,)``, ``amounts`` ``(k, n)``; the answer has shape ``(k, bins)``.
    Spans may overlap. One that an edge cuts is shared in proportion; what lies outside the edges is left out.
    """
    end_s = np.maximum(end_s, start_s + 1e-9)
    rates = amounts / (end_s - start_s)
    moments = np.concatenate([start_s, end_s])
    order = np.argsort(moments, kind="stable")
    moments = moments[order]
    changes = np.concatenate([rates, -rates], axis=1)[:, order]
    areas = np.cumsum(changes, axis=1)[:, :-1] * np.diff(moments)
    totals = np.concatenate([np.zeros((len(amounts), 1)), np.cumsum(areas, axis=1)], axis=1)
    if not len(moments):
        return np.zeros((len(amounts), len(edges_s) - 1))
    inside: Floats = np.stack([np.diff(np.interp(edges_s, moments, total)) for total in totals])
    return inside.clip(min=0.0)


def held_until(replica: NDArray[np.int64], start_s: Floats, end_s: Floats) -> Floats:
    """When the state of each iteration stops to hold: at its end, or when its replica starts the next one.

    Rows are ordered by start. With batches in flight iterations overlap, and the later one tells the state.
    """
    until_s = end_s.copy()
    order = np.argsort(replica, kind="stable")
    same = np.flatnonzero(replica[order][1:] == replica[order][:-1])
    before, after = order[same], order[same + 1]
    until_s[before] = np.minimum(end_s[before], start_s[after])
    return until_s


def quantiles_per_bin(time_s: Floats, values: Floats, edges_s: Floats, levels: Sequence[float]) -> Floats:
    """Quantiles (nearest rank) of the values in each bin of time, shape ``(levels, bins)``; NaN if none."""
    known = _inside(time_s, edges_s) & np.isfinite(values)
    bins = len(edges_s) - 1
    bin_of = _bins_of(time_s[known], edges_s)
    ordered = values[known][np.lexsort((values[known], bin_of))]
    counts = np.bincount(bin_of, minlength=bins)
    first = np.cumsum(counts) - counts
    answer = np.full((len(levels), bins), np.nan)
    filled = counts > 0
    for row, level in zip(answer, levels, strict=True):
        rank = np.maximum(np.ceil(level * counts[filled]).astype(np.int64) - 1, 0)
        row[filled] = ordered[first[filled] + rank]
    return answer


def total_per_bin(time_s: Floats, edges_s: Floats, weights: ArrayLike | None = None) -> Floats:
    """The number, or the sum of weights, of what happens in each bin; others count nowhere."""
    known = _inside(time_s, edges_s)
    chosen = None if weights is None else np.asarray(weights, dtype=np.float64)[known]
    bin_of = _bins_of(time_s[known], edges_s)
    return np.bincount(bin_of, weights=chosen, minlength=len(edges_s) - 1).astype(np.float64)


def _bins_of(time_s: Floats, edges_s: Floats) -> NDArray[np.int64]:
    """The bin of each time inside the edges; the last edge is in the last bin."""
    return np.minimum(np.searchsorted(edges_s, time_s, side="right") - 1, len(edges_s) - 2)


def _inside(time_s: Floats, edges_s: Floats) -> NDArray[np.bool_]:
    inside: NDArray[np.bool_] = (time_s >= edges_s[0]) & (time_s <= edges_s[-1])
    return inside


def cumulative_points(values: Floats, points: int = 400) -> tuple[Floats, Floats]:
    """The distribution of a sample as ``(values, shares)``: what share of it is at or below each value.

    Every row of a small sample; of a large one ``points`` ranks, half of them near the maximum, which is one.
    Values not known (NaN) are left out.
    """
    ordered = np.sort(values[np.isfinite(values)])
    count = len(ordered)
    ranks = np.arange(1, count + 1)
    if count > points:
        body = np.linspace(1, count, points // 2)
        tail = count - np.geomspace(1, count / 100, points // 2) + 1
        ranks = np.unique(np.concatenate([body, tail]).round().astype(np.int64))
    return ordered[ranks - 1], ranks / max(count, 1)
