"""Figures of load: what waited and ran, what held memory, what bound each moment, what came out."""

import numpy as np
import plotly.graph_objects as go

from llmsim.report.binning import Floats, amount_per_bin, held_until, total_per_bin
from llmsim.report.drawing import (
    BINS,
    NO_ITERATIONS,
    NO_REQUESTS,
    draw_area,
    draw_line,
    edges_of,
    middles,
    over_time,
)
from llmsim.report.style import (
    ACCENT,
    DECODE,
    INK,
    MUTED,
    PREEMPTED,
    PREFILL,
    QUEUED,
    RESOURCE_COLOURS,
    RESOURCE_NAMES,
    a_figure,
    empty_note,
    shade,
)
from llmsim.results.record import Columns
from llmsim.results.results import Results

THROUGHPUT_BINS = 80
"""Wider bins where single arrivals and ends are counted, so that the figure shows rates and not noise."""
DISTINCT_REPLICAS = 8
"""Up to so many replicas get a line each; more are drawn as the lowest, the mean and the highest."""


def load_over_time(results: Results) -> go.Figure:
    """Requests running and waiting, KV blocks held, and the tokens of a batch, over time."""
    iterations, edges_s = results.record.iterations, edges_of(results, BINS)
    figure = a_figure(
        rows=3,
        height=600,
        shared_xaxes=True,
        vertical_spacing=0.08,
        subplot_titles=("Requests", "KV cache held", "Tokens in a batch (mean)"),
    )
    if not len(iterations["start_s"]):
        return empty_note(figure, NO_ITERATIONS)
    start_s, end_s = iterations["start_s"], iterations["end_s"]
    hold_s = held_until(iterations["replica"], start_s, end_s) - start_s
    counts = np.stack([iterations["running"], iterations["waiting"]])
    running, waiting = amount_per_bin(start_s, start_s + hold_s, counts * hold_s, edges_s) / np.diff(edges_s)
    draw_line(figure, 1, edges_s, running, "running", INK)
    draw_line(figure, 1, edges_s, waiting, "waiting", QUEUED)
    _draw_kv(figure, results, start_s, hold_s, edges_s)
    _draw_batches(figure, iterations, edges_s)
    figure.update_yaxes(tickformat=".0%", range=[0, 1.08], row=2, col=1)
    return over_time(figure, results, edges_s)


def _draw_kv(figure: go.Figure, results: Results, start_s: Floats, hold_s: Floats, edges_s: Floats) -> None:
    """KV usage per replica while they are few, else its span and mean; marks where requests lost blocks."""
    iterations = results.record.iterations
    replica, blocks = iterations["replica"], iterations["kv_blocks"]
    sizes = _blocks_of_replicas(results)
    usage = []
    for number in np.unique(replica):
        own = replica == number
        held = (blocks[own] * hold_s[own])[np.newaxis] / sizes[number]
        held_s = amount_per_bin(start_s[own], (start_s + hold_s)[own], held, edges_s)[0]
        usage.append(held_s / np.diff(edges_s))
    if len(usage) == 1:
        series = {"KV held": usage[0]}
    elif len(usage) <= DISTINCT_REPLICAS:
        series = {f"replica {number}": line for number, line in enumerate(usage)}
    else:
        series = {
            "mean": np.mean(usage, axis=0),
            "fullest replica": np.max(usage, axis=0),
            "emptiest replica": np.min(usage, axis=0),
        }
    for at, (name, shares) in enumerate(series.items()):
        draw_line(figure, 2, edges_s, shares, name, shade(at, len(series)), "%{y:.1%}")
    _draw_preemptions(figure, iterations, edges_s)


def _draw_preemptions(figure: go.Figure, iterations: Columns, edges_s: Floats) -> None:
    lost = total_per_bin(iterations["start_s"], edges_s, iterations["preempted"])
    hit = lost > 0
    if hit.any():
        figure.add_scatter(
            x=middles(edges_s)[hit], y=np.full(int(hit.sum()), 1.04), row=2, col=1, mode="markers",
            name="preemptions", marker={"symbol": "triangle-down", "size": 8, "color": PREEMPTED},
            customdata=lost[hit], hovertemplate="%{customdata:.0f}",
        )  # fmt: skip


def _blocks_of_replicas(results: Results) -> dict[int, float]:
    """KV blocks of each replica: of its pool, or so many that the peak is the usage that was measured."""
    iterations, requests = results.record.iterations, results.record.requests
    pool_sizes = {pool["name"]: pool.get("num_gpu_blocks") for pool in results.facts.pools}
    pool_of = dict(zip(requests["replica"].tolist(), requests["pool"], strict=True))
    otherwise = iterations["kv_blocks"].max() / (results.record.totals.kv_usage_max or 1.0) or 1.0
    numbers = np.unique(iterations["replica"]).tolist()
    return {number: pool_sizes.get(pool_of.get(number)) or otherwise for number in numbers}


def _draw_batches(figure: go.Figure, iterations: Columns, edges_s: Floats) -> None:
    """Mean tokens of the iterations that start in each bin, prompt tokens on top of decodes."""
    start_s = iterations["start_s"]
    count = np.maximum(total_per_bin(start_s, edges_s), 1)
    for column, name, colour in (
        ("decode_tokens", "decode tokens", DECODE),
        ("prefill_tokens", "prompt tokens", PREFILL),
    ):
        mean = total_per_bin(start_s, edges_s, iterations[column]) / count
        draw_area(figure, 3, edges_s, mean, name, colour, "%{y:.4g}")


def bound_over_time(results: Results) -> go.Figure:
    """What replica time went to, over time: shares of compute, HBM bandwidth, links, overhead and idling."""
    figure = a_figure(height=320)
    columns, edges_s = results.record.iterations, edges_of(results, BINS)
    if not len(columns["start_s"]):
        return empty_note(figure, NO_ITERATIONS)
    for resource, share in bound_shares(results, edges_s).items():
        if resource == "link" and not share.any():
            continue
        draw_area(figure, 1, edges_s, share, RESOURCE_NAMES[resource], RESOURCE_COLOURS[resource], "%{y:.1%}")
    figure.update_yaxes(tickformat=".0%", range=[0, 1], title_text="share of replica time")
    return over_time(figure, results, edges_s)


def bound_shares(results: Results, edges_s: Floats) -> dict[str, Floats]:
    """For each resource the share of replica time spent on it in each bin; the shares of a bin sum to one.

    With batches in flight the parts of overlapping iterations are scaled to the time the replica was busy.
    """
    columns = results.record.iterations
    start_s, end_s = columns["start_s"], columns["end_s"]
    parts = np.stack([columns[f"{name}_s"] for name in RESOURCE_NAMES if name != "idle"])
    spent = amount_per_bin(start_s, end_s, parts, edges_s)
    until_s = held_until(columns["replica"], start_s, end_s)
    busy_s = amount_per_bin(start_s, until_s, (until_s - start_s)[np.newaxis], edges_s)[0]
    busy = np.clip(
        busy_s / (np.diff(edges_s) * max(results.facts.replicas, len(np.unique(columns["replica"])))),
        0.0,
        1.0,
    )
    total = spent.sum(axis=0)
    shares = np.where(total > 0, spent / np.where(total > 0, total, 1.0) * busy, 0.0)
    return dict(zip(RESOURCE_NAMES, [*shares, 1.0 - shares.sum(axis=0)], strict=True))


def throughput_over_time(results: Results) -> go.Figure:
    """Requests arriving and finishing, and tokens coming in and going out, per second over time."""
    requests, edges_s = results.record.requests, edges_of(results, THROUGHPUT_BINS)
    figure = a_figure(
        rows=2,
        height=440,
        shared_xaxes=True,
        vertical_spacing=0.12,
        subplot_titles=("Requests per second", "Tokens per second"),
    )
    if not len(requests["arrival_s"]):
        return empty_note(figure, NO_REQUESTS)
    width_s = np.diff(edges_s)
    for column, name, colour in (("arrival_s", "arriving", MUTED), ("finish_s", "finishing", ACCENT)):
        rate = total_per_bin(requests[column], edges_s) / width_s
        draw_line(figure, 1, edges_s, rate, name, colour)
    prompt, output = _tokens_per_bin(results, edges_s) / width_s
    draw_line(figure, 2, edges_s, prompt, "prompt tokens computed", PREFILL)
    draw_line(figure, 2, edges_s, output, "output tokens", DECODE)
    return over_time(figure, results, edges_s)


def _tokens_per_bin(results: Results, edges_s: Floats) -> Floats:
    """Prompt and output tokens in each bin, shape ``(2, bins)``: of iterations, else spread over requests."""
    iterations, requests = results.record.iterations, results.record.requests
    if len(iterations["start_s"]):
        tokens = np.stack([iterations["prefill_tokens"], iterations["sampled"]])
        return amount_per_bin(iterations["start_s"], iterations["end_s"], tokens, edges_s)
    begun = {name: column[~np.isnan(requests["first_token_s"])] for name, column in requests.items()}
    first_s, end_s = begun["first_token_s"], results.facts.window_end_s
    last_s = np.where(np.isnan(begun["finish_s"]), end_s, begun["finish_s"])
    computed = (begun["prompt_tokens"] - begun["cached_tokens"])[np.newaxis]
    prompt = amount_per_bin(begun["first_scheduled_s"], first_s, computed, edges_s)
    output = amount_per_bin(first_s, last_s, begun["output_tokens"][np.newaxis], edges_s)
    return np.concatenate([prompt, output])
