"""Pictures of studies: grids, load-latency curves, effects, waterfalls."""

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from llmsim.report.style import ACCENT, DECODE, INK, LIMIT, MUTED, PREFILL, a_figure, empty_note, faint, line
from llmsim.report.tables import METRIC_NAMES
from llmsim.results.breakdown import Explained
from llmsim.results.statistics import Interval
from llmsim.study.capacities import Capacity
from llmsim.study.comparing import Comparison
from llmsim.study.planning import Plan
from llmsim.study.sweeping import Sweep
from llmsim.study.whatif import WhatIf

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5d3a9b", "#8d99a5")
VERDICT_COLOURS = {"better": PREFILL, "worse": LIMIT, "no difference seen": MUTED, "too few": "#e69f00"}
COMPONENT_NAMES = {
    "frontend_s": "frontend",
    "queue_slots_s": "queue: slots",
    "queue_kv_s": "queue: KV",
    "queue_budget_s": "queue: token budget",
    "queue_delay_s": "queue: held back",
    "queue_boundary_s": "queue: iteration in flight",
    "prefill_s": "own prefill",
    "preempted_s": "preempted",
    "recompute_s": "recomputing",
    "decode_hbm_s": "decode: HBM",
    "decode_compute_s": "decode: compute",
    "decode_link_s": "decode: links",
    "decode_overhead_s": "decode: overhead",
    "others_prefill_s": "others' prefill",
}
"""Short names of ``breakdown.COMPONENTS``."""


def sweep_figure(sweep: Sweep, metric: str) -> go.Figure:
    """A metric over the grid: lines with bands over one number, a heat map over two; further keys are a line each.

    Bands are 95 % intervals over the seeds.
    """
    points = sweep.intervals(metric)
    numeric = [key for key, values in sweep.grid.items() if all(_is_number(value) for value in values)]
    if len(numeric) >= 2 and len(sweep.grid) == 2:
        return _heat_map(points, numeric[0], numeric[1], metric)
    along = max(numeric or list(sweep.grid), key=lambda key: len(sweep.grid[key]))
    return _lines(points, along, metric)


def capacity_figure(capacity: Capacity) -> go.Figure:
    """Latency over load, a panel a metric, with the SLO's limits and the capacity."""
    curve = capacity.curve
    curve = curve[curve["requests"] == curve.groupby("load")["requests"].transform("max")]
    limits = [key for key in capacity.scenario.slo if not key.startswith("itl")]
    metrics = list(dict.fromkeys(key.split("_")[0] for key in limits)) or ["ttft", "tpot"]
    figure = a_figure(columns=len(metrics), subplot_titles=[f"{METRIC_NAMES[metric]}, s" for metric in metrics])
    for column, metric in enumerate(metrics, 1):
        for statistic, colour in (("mean", MUTED), ("p99", ACCENT)):
            series = curve.groupby("load")[f"{metric}_s.{statistic}"].mean()
            figure.add_scatter(
                x=series.index, y=series, mode="lines+markers", name=statistic, line=line(colour),
                legendgroup=statistic, showlegend=column == 1, row=1, col=column,
            )  # fmt: skip
        for key in limits:
            if key.startswith(metric):
                figure.add_hline(y=capacity.scenario.slo[key], line=line(LIMIT, dash="dot"), row=1, col=column)
        figure.add_vline(x=capacity.value, line=line(INK, dash="dash"), row=1, col=column)
        figure.add_vrect(
            x0=capacity.interval.low,
            x1=capacity.interval.high,
            fillcolor=faint(MUTED),
            line_width=0,
            layer="below",
            row=1,
            col=column,
        )
        figure.update_xaxes(title_text=capacity.load, row=1, col=column)
        figure.update_yaxes(type="log", rangemode="normal", row=1, col=column)
    return figure


def comparison_figure(comparison: Comparison) -> go.Figure:
    """The change of each metric from A to B with its interval, coloured by the verdict."""
    effects = comparison.effects
    if not effects:
        return empty_note(a_figure(), "Not drawn: the two have no figure in common.")
    colours = [VERDICT_COLOURS[effect.verdict] for effect in effects]
    names = [f"{effect.metric} ({effect.verdict})" for effect in effects]
    return _bars_with_intervals(names, [effect.change for effect in effects], colours)


def what_if_figure(found: WhatIf) -> go.Figure:
    """The change of the metric for each lever with its interval."""
    colours = [PREFILL if lever.helps else MUTED for lever in found.levers]
    names = [f"{lever.name} +{found.step:.0%}" for lever in found.levers]
    return _bars_with_intervals(names, [lever.change for lever in found.levers], colours)


def waterfall_figure(explained: Explained) -> go.Figure:
    """Where the time of the requests at a percentile went, component upon component up to the whole."""
    shown = {name: value for name, value in explained.components_s.items() if value > 0}
    figure = a_figure(height=380)
    figure.add_waterfall(
        x=[*(COMPONENT_NAMES[name] for name in shown), METRIC_NAMES[explained.metric]],
        y=[*shown.values(), explained.total_s],
        measure=[*("relative" for _ in shown), "total"],
        increasing={"marker": {"color": DECODE}},
        totals={"marker": {"color": INK}},
        connector={"line": line(MUTED, 0.8)},
        hovertemplate="%{y:.4g} s<extra></extra>",
    )
    figure.update_yaxes(title_text="seconds")
    return figure.update_layout(showlegend=False)


def _lines(points: list[tuple[dict[str, Any], Interval]], along: str, metric: str) -> go.Figure:
    groups: dict[str, list[tuple[Any, Interval]]] = {}
    for settings, interval in points:
        name = ", ".join(f"{_short(key)} {value}" for key, value in settings.items() if key != along)
        groups.setdefault(name, []).append((settings[along], interval))
    figure = a_figure()
    for number, (name, members) in enumerate(groups.items()):
        colour = COLOURS[number % len(COLOURS)]
        xs = [value if _is_number(value) else str(value) for value, _ in members]
        lows, highs = ([getattr(interval, side) for _, interval in members] for side in ("low", "high"))
        figure.add_scatter(
            x=[*xs, *xs[::-1]], y=[*highs, *lows[::-1]], fill="toself", fillcolor=faint(colour), line={"width": 0},
            hoverinfo="skip", showlegend=False,
        )  # fmt: skip
        figure.add_scatter(
            x=xs, y=[interval.value for _, interval in members], mode="lines+markers", name=name or metric,
            line=line(colour),
        )  # fmt: skip
    figure.update_xaxes(title_text=along)
    return figure.update_yaxes(title_text=metric)


def _heat_map(points: list[tuple[dict[str, Any], Interval]], x: str, y: str, metric: str) -> go.Figure:
    figure = a_figure(height=420)
    figure.add_heatmap(
        x=[settings[x] for settings, _ in points],
        y=[settings[y] for settings, _ in points],
        z=[interval.value for _, interval in points],
        colorscale="Viridis",
        colorbar={"title": {"text": metric}},
    )
    figure.update_xaxes(title_text=x, type="category")
    return figure.update_yaxes(title_text=y, type="category")


def _bars_with_intervals(names: Sequence[str], changes: Sequence[Interval], colours: Sequence[str]) -> go.Figure:
    figure = a_figure(height=80 + 34 * len(names))
    figure.add_scatter(
        x=[100 * change.value for change in changes],
        y=list(names),
        mode="markers",
        marker={"size": 10, "color": list(colours)},
        error_x={
            "type": "data",
            "array": [100 * (change.high - change.value) for change in changes],
            "arrayminus": [100 * (change.value - change.low) for change in changes],
            "color": MUTED,
        },
        hovertemplate="%{x:.2f} %<extra></extra>",
    )
    figure.add_vline(x=0, line=line(INK, 1))
    figure.update_xaxes(title_text="change, %", rangemode="normal")
    figure.update_yaxes(autorange="reversed", rangemode="normal", automargin=True)
    return figure.update_layout(showlegend=False, hovermode="closest")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _short(key: str) -> str:
    return key.rpartition(".")[2]


def plan_figure(plan: Plan) -> go.Figure:
    """Options by cost and TTFT; the size is their GPUs, those on the Pareto front are dark."""
    figure = a_figure(height=380)
    largest = max(option.gpus for option in plan.options)
    figure.add_scatter(
        x=[option.usd_per_month for option in plan.options],
        y=[option.ttft_p99_s for option in plan.options],
        text=[option.candidate.name for option in plan.options],
        mode="markers+text",
        textposition="top center",
        marker={
            "size": [12 + 30 * (option.gpus / largest) ** 0.5 for option in plan.options],
            "color": [ACCENT if option.pareto else MUTED for option in plan.options],
            "opacity": 0.75,
        },
        hovertemplate="%{text}: $%{x:,.0f} a month, TTFT p99 %{y:.3g} s<extra></extra>",
    )
    figure.update_xaxes(title_text="US dollars a month, with headroom", rangemode="tozero")
    figure.update_yaxes(title_text="TTFT p99 at capacity, s")
    return figure.update_layout(showlegend=False, hovermode="closest")


def tornado_figure(plan: Plan) -> go.Figure:
    """What the cheapest option costs when one assumption is off, the most telling on top."""
    figure = a_figure(height=80 + 34 * len(plan.tornado))
    lows = [min(swing.low_usd_per_month, swing.high_usd_per_month) for swing in plan.tornado]
    highs = [max(swing.low_usd_per_month, swing.high_usd_per_month) for swing in plan.tornado]
    figure.add_bar(
        y=[swing.assumption for swing in plan.tornado],
        x=[high - low for low, high in zip(lows, highs, strict=True)],
        base=lows,
        orientation="h",
        marker={"color": DECODE},
        hovertemplate="%{base:,.0f} to %{x:,.0f}<extra></extra>",
    )
    figure.add_vline(x=plan.best.usd_per_month, line=line(INK, 1))
    figure.update_xaxes(title_text="US dollars a month", rangemode="normal")
    figure.update_yaxes(autorange="reversed", rangemode="normal", automargin=True)
    return figure.update_layout(showlegend=False, hovermode="closest")
