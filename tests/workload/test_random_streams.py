"""Random streams depend on seed and name, and on nothing else."""

import numpy as np

from llmsim.workload.random_streams import stream


def test_a_stream_is_repeatable_and_depends_on_seed_and_name() -> None:
    first = stream(0, "router").random(100)
    assert np.array_equal(first, stream(0, "router").random(100))
    assert not np.isin(first, stream(1, "router").random(100)).any()
    assert not np.isin(first, stream(0, "faults").random(100)).any()


def test_streams_of_neighbouring_seeds_and_names_are_uncorrelated() -> None:
    drawn = np.array([stream(seed, name).random(10_000) for seed in range(4) for name in ("a", "b", "c")])
    correlation = np.corrcoef(drawn) - np.eye(len(drawn))
    assert np.abs(correlation).max() < 4 / np.sqrt(10_000)
