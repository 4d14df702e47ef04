"""Binning keeps totals, means and extremes."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from llmsim.report.binning import (
    amount_per_bin,
    cumulative_points,
    held_until,
    quantiles_per_bin,
    time_edges,
    total_per_bin,
)

EDGES_S = np.array([0.0, 1.0, 2.0, 3.0])


def test_a_span_cut_by_an_edge_is_shared_in_proportion() -> None:
    shares = amount_per_bin(np.array([0.75]), np.array([1.75]), np.array([[8.0]]), EDGES_S)
    np.testing.assert_allclose(shares, [[2.0, 6.0, 0.0]])


def test_overlapping_spans_add_up() -> None:
    shares = amount_per_bin(np.array([0.0, 0.5]), np.array([2.0, 1.5]), np.array([[2.0, 4.0]]), EDGES_S)
    np.testing.assert_allclose(shares, [[3.0, 3.0, 0.0]], atol=1e-12)


@given(st.lists(st.tuples(st.floats(0, 3), st.floats(0, 3), st.floats(0, 100)), max_size=30))
def test_all_that_lies_inside_the_edges_is_kept(spans: list[tuple[float, float, float]]) -> None:
    ends = np.array([sorted(span[:2]) for span in spans]).reshape(-1, 2)
    amounts = np.array([[span[2] for span in spans]])
    kept = amount_per_bin(ends[:, 0] * 0.999, ends[:, 1] * 0.999, amounts, EDGES_S)
    np.testing.assert_allclose(kept.sum(), amounts.sum(), rtol=1e-6, atol=1e-6)


def test_a_state_holds_until_the_replica_starts_its_next_iteration() -> None:
    replica = np.array([0, 1, 0, 0])
    start_s, end_s = np.array([0.0, 0.1, 0.5, 3.0]), np.array([1.0, 1.1, 1.5, 4.0])
    np.testing.assert_array_equal(held_until(replica, start_s, end_s), [0.5, 1.1, 1.5, 4.0])


@given(st.integers(0, 2**32), st.integers(1, 200))
def test_quantiles_of_a_bin_are_those_of_its_values(seed: int, count: int) -> None:
    random = np.random.default_rng(seed)
    time_s, values = random.uniform(-0.5, 3.5, count), random.normal(size=count)
    found = quantiles_per_bin(time_s, values, EDGES_S, (0.5, 0.99, 1.0))
    for number in range(3):
        inside = values[(time_s >= number) & (time_s < number + 1)]
        if len(inside):
            expected = np.quantile(inside, (0.5, 0.99, 1.0), method="inverted_cdf")
            np.testing.assert_array_equal(found[:, number], expected)
        else:
            assert np.isnan(found[:, number]).all()


def test_totals_count_the_last_edge_and_nothing_outside() -> None:
    time_s = np.array([0.0, 0.5, 3.0, 3.5, -1.0, np.nan])
    np.testing.assert_array_equal(total_per_bin(time_s, EDGES_S), [2, 0, 1])
    np.testing.assert_array_equal(total_per_bin(time_s, EDGES_S, np.arange(6)), [1, 0, 2])


def test_a_large_sample_is_drawn_with_few_points_that_lie_on_its_distribution() -> None:
    sample = np.random.default_rng(0).exponential(size=100_000)
    values, shares = cumulative_points(sample)
    assert len(values) <= 400
    assert (values[-1], shares[-1]) == (sample.max(), 1.0)
    np.testing.assert_array_equal(shares, np.searchsorted(np.sort(sample), values, side="right") / len(sample))
    assert np.sum(shares > 0.999) > 50


def test_a_span_without_length_has_bins() -> None:
    assert np.all(np.diff(time_edges(0.0, 0.0, 10)) > 0)
