"""Rates that change with time: the arrivals of every window have the rate that the profile says."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from llmsim.errors import ScenarioError
from llmsim.workload import RequestTable
from llmsim.workload.arrivals import Poisson, arrivals_until_s
from llmsim.workload.random_streams import stream
from llmsim.workload.rates import Diurnal, Ramp, Spikes, Steps, TraceRate
from llmsim.workload.readers import write_trace

RAMP = Ramp(times_s=(0.0, 100.0, 100.0, 200.0), relative=(0.0, 2.0, 0.5, 1.0))
DAY = Diurnal(amplitude=0.8, peak_s=50.0, period_s=200.0)
SPIKES = Spikes(factor=5.0, duration_s=10.0, every_s=60.0)
STEPS = Steps(step_s=30.0, relative=(0.5, 2.0, 0.0, 1.0))


def rate_of(profile: Any, time_s: np.ndarray) -> np.ndarray:
    """What each profile's documentation says its rate is."""
    if profile is RAMP:
        return np.where(time_s < 100, time_s / 50, np.where(time_s < 200, 0.5 + (time_s - 100) / 200, 1.0))
    if profile is DAY:
        return 1 + 0.8 * np.cos(2 * np.pi * (time_s - 50) / 200)
    if profile is SPIKES:
        return np.where(time_s % 60 >= 50, 5.0, 1.0)
    return np.array(STEPS.relative)[(time_s % 120 // 30).astype(int)]


PROFILES = [RAMP, DAY, SPIKES, STEPS]


@pytest.mark.parametrize("profile", PROFILES)
def test_the_integral_is_that_of_the_rate(profile: Any) -> None:
    fine = np.linspace(0, 390, 390_001)
    middles = (fine[1:] + fine[:-1]) / 2
    sums = np.concatenate(([0.0], np.cumsum(rate_of(profile, middles) * np.diff(fine))))
    for time_s in (0.0, 7.0, 55.0, 99.9, 130.0, 210.0, 385.0):
        assert profile.integral(time_s) == pytest.approx(np.interp(time_s, fine, sums), abs=1e-2)


@pytest.mark.parametrize("profile", PROFILES)
def test_warp_is_the_inverse_of_the_integral(profile: Any) -> None:
    times_s = np.array([1.0, 30.5, 52.0, 99.0, 101.0, 155.0, 230.0, 385.0])
    times_s = times_s[rate_of(profile, times_s) > 0]
    steady_s = np.array([profile.integral(time_s) for time_s in times_s])
    np.testing.assert_allclose(profile.warp(steady_s), times_s, rtol=1e-7)


@pytest.mark.parametrize("profile", PROFILES)
def test_the_rate_of_each_window_is_recovered(profile: Any) -> None:
    from scipy.stats import chi2

    rate, end_s = 200.0, 390.0
    steady = arrivals_until_s(Poisson(), rate, profile.integral(end_s), stream(0, "test"))
    edges = np.arange(0, end_s + 1, 10.0)
    counts = np.histogram(profile.warp(steady), edges)[0]
    expected = rate * np.diff([profile.integral(edge) for edge in edges])
    assert not counts[expected == 0].any()
    some = expected > 0
    statistic = np.sum((counts - expected)[some] ** 2 / expected[some])
    assert chi2.sf(statistic, some.sum()) > 1e-3


def test_the_rate_of_a_trace_is_that_of_its_steps(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    arrivals = np.concatenate((np.linspace(0, 9.9, 10), np.linspace(10, 19.9, 30), [20.0]))
    write_trace(RequestTable.build(arrival_s=arrivals, prompt_tokens=1, output_tokens=1), path)
    profile = TraceRate(path=path, step_s=10.0)
    assert profile.integral(10.0) == pytest.approx(5.0)
    assert profile.integral(20.0) == pytest.approx(20.0)
    with pytest.raises(ScenarioError, match="shorter than a step of 100 s"):
        TraceRate(path=path, step_s=100.0).integral(1.0)
    assert TraceRate(path=Path("trace.csv")).located(tmp_path).path == path
    with pytest.raises(ValueError, match="there is no such file"):
        TraceRate(path=Path("other.csv")).located(tmp_path)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Ramp(times_s=(0.0,), relative=(1.0,)), "give 2 or more of both"),
        (lambda: Ramp(times_s=(0.0, 5.0), relative=(1.0,)), "2 times_s and 1 relative"),
        (lambda: Ramp(times_s=(1.0, 5.0), relative=(1.0, 2.0)), "must begin at 0"),
        (lambda: Ramp(times_s=(0.0, 5.0, 4.0), relative=(1.0, 2.0, 1.0)), "must begin at 0 and increase"),
        (lambda: Ramp(times_s=(0.0, 5.0), relative=(1.0, 0.0)), "must be above 0"),
        (lambda: Diurnal(amplitude=1.5), "amplitude"),
        (lambda: Spikes(factor=2.0, duration_s=60.0, every_s=60.0), "allowed is less than every_s, 60"),
    ],
)
def test_impossible_profiles_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        make()
