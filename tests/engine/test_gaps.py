"""The longest gap since an iteration, against the maximum over a list of all gaps."""

from hypothesis import given, settings
from hypothesis import strategies as st

from llmsim.engine.gaps import GapHistory


@settings(max_examples=150, derandomize=True, deadline=None, database=None)
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 9)), max_size=30), st.integers(0, 80))
def test_the_longest_gap_is_the_maximum_of_all_since(pushed: list[tuple[int, int]], since: int) -> None:
    history, gaps, iteration = GapHistory(), [], 0
    for skipped, gap in pushed:
        iteration += skipped
        history.push(iteration, gap)
        gaps.append((iteration, gap))
        assert history.longest_since(since) == max((each for number, each in gaps if number >= since), default=-1)
