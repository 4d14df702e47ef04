"""Figures show what the record says."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest

from llmsim.report import figures
from llmsim.report.load_figures import bound_shares
from llmsim.report.style import PART_STYLES, RESOURCE_NAMES
from llmsim.results.attribution import PARTS
from llmsim.results.results import Results
from tests.report.runs import a_queue, the_story
from tests.results.factories import a_record, a_rejected_request, an_iteration, some_facts

ALL = [getattr(figures, name) for name in figures.__all__]


def traces(figure: go.Figure, name: str) -> list[go.Scatter]:
    return [trace for trace in figure.data if trace.name == name]


def integral(figure: go.Figure, name: str, end_s: float) -> float:
    """The area under a line that has a point a bin."""
    series = np.asarray(traces(figure, name)[0].y)
    return float(series.sum() * end_s / len(series))


def test_distributions_rise_to_one_and_their_tails_mirror_them() -> None:
    results = a_queue(load=0.8)
    figure = figures.latency_distribution(results)
    ttft = np.sort(results.requests["first_token_s"] - results.requests["arrival_s"])
    curve, tail = traces(figure, "TTFT")
    assert np.all(np.diff(curve.y) >= 0) and curve.y[-1] == 1.0
    assert curve.x[-1] == pytest.approx(ttft[-1])
    at_p99 = np.interp(0.99, curve.y, curve.x)
    assert at_p99 == pytest.approx(results.summary()["ttft_s"]["p99"], rel=0.02)
    np.testing.assert_allclose(tail.y[:-1], 1 - np.asarray(curve.y)[:-1])


def test_limits_stand_where_the_slo_says() -> None:
    figure = figures.latency_distribution(a_queue(slo={"ttft_p95_s": 3.0, "e2e_mean_s": 9.0}))
    crosses = traces(figure, "TTFT p95 limit")
    assert [cross.x[0] for cross in crosses] == [3.0, 3.0]
    assert [cross.y[0] for cross in crosses] == pytest.approx([0.95, 0.05])
    assert {shape.x0 for shape in figure.layout.shapes} == {3.0, 9.0}
    over_time = figures.latency_over_time(the_story(slo={"ttft_p95_s": 3.0, "itl_p99_s": 0.2, "e2e_p50_s": 9.0}))
    assert [(shape.y0, shape.yref) for shape in over_time.layout.shapes] == [(3.0, "y"), (0.2, "y3")]


def test_load_is_time_weighted() -> None:
    results = the_story()
    figure = figures.load_over_time(results)
    assert integral(figure, "running", 0.5) == pytest.approx(0.1 * 1 + 0.12 * 2)
    assert integral(figure, "KV held", 0.5) == pytest.approx((0.1 * 63 + 0.12 * 95) / 200)


def test_kv_is_a_share_of_the_pool_of_the_replica() -> None:
    pools = [{"name": "chat", "num_gpu_blocks": 100}]
    figure = figures.load_over_time(the_story(pools=pools))
    assert max(traces(figure, "KV held")[0].y) == pytest.approx(0.95)


@pytest.mark.parametrize(("replicas", "lines"), [(2, 2), (8, 8), (9, 3)])
def test_few_replicas_get_a_line_each(replicas: int, lines: int) -> None:
    iterations = [an_iteration(0, replica=number) for number in range(replicas)]
    facts = some_facts(replicas=replicas)
    figure = figures.load_over_time(Results(a_record(iterations=iterations, facts=facts)))
    assert sum(trace.yaxis == "y2" for trace in figure.data) == lines


def test_bound_shares_sum_to_one_and_to_the_seconds_of_the_run() -> None:
    results = the_story()
    edges_s = np.linspace(0, 0.5, 8)
    shares = bound_shares(results, edges_s)
    assert list(shares) == list(RESOURCE_NAMES)
    np.testing.assert_allclose(sum(shares.values()), 1.0)
    seconds = {name: float(share.sum() * 0.5 / 7) for name, share in shares.items()}
    assert seconds == pytest.approx(results.record.totals.bound_s)


def test_bound_shares_of_overlapping_iterations_do_not_exceed_the_time_there_is() -> None:
    iterations = [
        an_iteration(number, start_s=number * 0.1, end_s=number * 0.1 + 0.2, bound=bound)
        for number, bound in enumerate(("compute", "hbm", "compute"))
    ]
    shares = bound_shares(Results(a_record(iterations=iterations)), np.linspace(0, 0.4, 9))
    assert np.all(shares["idle"] == pytest.approx(0))
    np.testing.assert_allclose(shares["compute"] + shares["hbm"], 1.0)
    np.testing.assert_allclose(shares["hbm"][2:6], 0.5)


def test_throughput_adds_up_to_the_requests_and_tokens_of_the_run() -> None:
    for results in (the_story(), a_queue(load=0.7)):
        end_s, requests = results.facts.window_end_s, results.requests
        figure = figures.throughput_over_time(results)
        finished = requests[requests["outcome"] == "finished"]
        assert integral(figure, "arriving", end_s) == pytest.approx(len(requests))
        assert integral(figure, "finishing", end_s) == pytest.approx(len(finished))
        assert integral(figure, "output tokens", end_s) == pytest.approx(requests["output_tokens"].sum())
        prompt = integral(figure, "prompt tokens computed", end_s)
        assert prompt == pytest.approx(finished["prompt_tokens"].sum())


def test_the_gap_between_tokens_is_seen_where_it_happened() -> None:
    figure = figures.latency_over_time(the_story())
    highest = next(trace for trace in traces(figure, "maximum") if trace.yaxis == "y3")
    assert sorted(np.round(np.asarray(highest.y)[~np.isnan(highest.y)], 6)) == [0.02, 0.1]


def test_the_parts_of_the_slowest_requests_sum_to_their_latency() -> None:
    figure = figures.slowest_requests(the_story())
    total = np.sum([trace.x for trace in figure.data], axis=0)
    np.testing.assert_allclose(total, [0.22, 0.17])
    assert figure.data[0].y[0].startswith("#0: 1,000 in, 3 out")


def test_every_part_of_a_latency_has_a_style() -> None:
    assert PART_STYLES.keys() == PARTS.keys()
    assert len({colour for _, colour in PART_STYLES.values()}) == len(PARTS)


@pytest.mark.parametrize("draw", ALL)
def test_a_large_run_is_drawn_as_light_as_a_small_one(draw: Callable[[Results], go.Figure]) -> None:
    count = 50_000
    start_s = np.arange(count) * 0.01
    iterations = a_record().iterations
    many = {name: np.resize(column, count) for name, column in iterations.items()}
    many |= {"start_s": start_s, "end_s": start_s + 0.01, "iteration": np.arange(count)}
    queue = a_queue(requests=3000)
    facts = replace(queue.facts, record="full", window_end_s=float(start_s[-1]))
    record = replace(queue.record, iterations=many, facts=facts)
    figure = draw(
        Results(replace(record, requests=a_record().requests) if draw is figures.slowest_requests else record)
    )
    assert figure.data and len(figure.to_json()) < 300_000


@pytest.mark.parametrize("draw", ALL)
@pytest.mark.parametrize(
    "results",
    [
        Results(a_record(requests=[], iterations=[])),
        Results(a_record(requests=[a_rejected_request()], iterations=[], facts=some_facts(slo={"ttft_p99_s": 1.0}))),
        Results(a_record(requests=[], iterations=[], facts=some_facts(window_end_s=0.0))),
        a_queue(requests=1, load=1.0),
    ],
)
def test_there_is_a_figure_for_a_run_with_nothing_in_it(draw: Callable[[Results], go.Figure], results: Results) -> None:
    figure = draw(results)
    assert figure.data or "Not drawn" in figure.layout.annotations[0].text
