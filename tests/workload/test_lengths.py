"""Lengths have the law asked for."""

import numpy as np
import pytest
from pydantic import ValidationError

from llmsim.workload.lengths import Fixed, LengthLaw, Lognormal, ParetoTail, Quantiles, Uniform, correlated
from llmsim.workload.random_streams import stream

QUANTILES = Quantiles(shares=(0.0, 0.5, 0.9, 1.0), tokens=(1, 100, 500, 900))
PARETO = ParetoTail(mean=300.0, p99=2000.0, tail_share=0.1, alpha=1.2, maximum=200_000)
LAWS = [Fixed(tokens=7), Uniform(low=1, high=3), Lognormal(mean=2.0, p99=20.0), QUANTILES, PARETO]


def draw(law: LengthLaw, count: int = 200_000) -> np.ndarray:
    return law.draw(count, stream(0, "test"))


@pytest.mark.parametrize("law", LAWS)
def test_lengths_are_whole_numbers_of_at_least_one(law: LengthLaw) -> None:
    lengths = draw(law)
    assert lengths.dtype == np.int64
    assert lengths.min() >= 1


@pytest.mark.parametrize("law", LAWS)
def test_more_lengths_begin_with_the_same(law: LengthLaw) -> None:
    np.testing.assert_array_equal(draw(law, 10), draw(law, 1_000)[:10])


@pytest.mark.parametrize(("mean", "p99"), [(1000.0, 5000.0), (200.0, 260.0), (300.0, 3900.0)])
def test_lognormal_has_the_mean_and_p99_asked_for(mean: float, p99: float) -> None:
    lengths = draw(Lognormal(mean=mean, p99=p99))
    assert lengths.mean() == pytest.approx(mean, abs=4 * lengths.std() / np.sqrt(len(lengths)))
    beyond = np.mean(lengths > p99)
    assert beyond == pytest.approx(0.01, abs=4 * np.sqrt(0.01 * 0.99 / len(lengths)))


def test_uniform_draws_every_length_of_its_range_equally_often() -> None:
    from scipy.stats import chisquare

    values, counts = np.unique(draw(Uniform(low=5, high=14)), return_counts=True)
    np.testing.assert_array_equal(values, np.arange(5, 15))
    assert chisquare(counts).pvalue > 1e-3


def test_quantiles_are_met() -> None:
    lengths = draw(QUANTILES)
    tolerance = 4 * 0.5 / np.sqrt(len(lengths))
    for share, tokens in zip(QUANTILES.shares[1:-1], QUANTILES.tokens[1:-1], strict=True):
        assert np.mean(lengths <= tokens) == pytest.approx(share, abs=0.002 + tolerance)


@pytest.mark.parametrize("law", LAWS)
def test_lengths_at_even_shares_have_the_law_of_drawn_ones(law: LengthLaw) -> None:
    even, drawn = np.sort(law.at((np.arange(200_000) + 0.5) / 200_000)), np.sort(draw(law))  # type: ignore[attr-defined]
    values = np.union1d(even, drawn)
    shares = [np.searchsorted(each, values, side="right") / 200_000 for each in (even, drawn)]
    # The 0.1 % quantile of Kolmogorov's distance is 1.95 / sqrt(n).
    assert np.abs(shares[0] - shares[1]).max() < 1.95 / np.sqrt(200_000)


def test_a_pareto_tail_falls_as_a_power_and_the_body_is_lognormal() -> None:
    lengths = draw(PARETO)
    start = np.quantile(lengths, 0.9)
    for factor in (2.0, 5.0, 20.0):
        share = np.mean(lengths > factor * start)
        assert share == pytest.approx(0.1 * factor**-1.2, abs=5 * np.sqrt(share / len(lengths)))
    body = draw(Lognormal(mean=300.0, p99=2000.0))
    for share in (0.1, 0.5, 0.85):
        assert np.quantile(lengths, share) == pytest.approx(np.quantile(body, share), rel=0.02)
    assert draw(ParetoTail(mean=300.0, p99=2000.0, alpha=0.5, maximum=5_000)).max() == 5_000


@pytest.mark.parametrize("rho", [-0.9, -0.3, 0.0, 0.5, 0.95])
@pytest.mark.parametrize("laws", [(Lognormal(mean=500.0, p99=3000.0), Uniform(low=1, high=9_999)), (PARETO, QUANTILES)])
def test_pairs_have_the_rank_correlation_and_each_its_law(rho: float, laws: tuple[LengthLaw, LengthLaw]) -> None:
    from scipy.stats import ks_2samp, spearmanr

    pairs = correlated(20_000, *laws, rho, stream(0, "test"))  # type: ignore[arg-type]
    assert spearmanr(*pairs).statistic == pytest.approx(rho, abs=5 / np.sqrt(20_000))
    for drawn, law in zip(pairs, laws, strict=True):
        assert ks_2samp(drawn, draw(law, 20_000)).pvalue > 1e-3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Fixed(tokens=0), "greater than 0"),
        (lambda: Uniform(low=5, high=4), "high is 4, below low, 5"),
        (lambda: Lognormal(mean=100.0, p99=90.0), "p99 is 90; allowed is more than the mean, 100"),
        (lambda: Lognormal(mean=100.0, p99=1500.0), "to 14 times"),
        (lambda: ParetoTail(mean=300.0, p99=2000.0, alpha=1.0, maximum=100), "maximum is 100; the tail begins at"),
        (lambda: Quantiles(shares=(0.0, 1.0), tokens=(1,)), "2 shares but 1 tokens"),
        (lambda: Quantiles(shares=(), tokens=()), "must increase from 0 to 1"),
        (lambda: Quantiles(shares=(0.0, 0.9), tokens=(1, 2)), "must increase from 0 to 1"),
        (lambda: Quantiles(shares=(0.0, 1.0), tokens=(2, 1)), "must not decrease"),
    ],
)
def test_impossible_laws_are_refused(make: object, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        make()  # type: ignore[operator]
