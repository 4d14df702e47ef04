"""The iteration clock against a list of sequences, each walked in every iteration."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from llmsim.engine.clock import IterationClock
from llmsim.engine.kv import BlockGroups
from llmsim.engine.sequence import Sequence
from tests.factories import a_sequence

LAST = 60


@dataclass
class Walked:
    """A decoding sequence as one would naturally keep it."""

    sequence: Sequence
    tokens: int
    """Whose KV is computed before the next iteration."""


@st.composite
def decodes(draw: st.DrawFn) -> tuple[int, int, int, bool]:
    """When a sequence joins, its tokens then, how many iterations it stays, and whether it is taken off early."""
    joins = draw(st.integers(0, LAST - 1))
    return joins, draw(st.integers(1, 70)), draw(st.integers(1, LAST)), draw(st.booleans())


def needed(walked: list[Walked], groups: BlockGroups, iterations: int) -> list[int]:
    """KV blocks each of the next iterations takes if nobody leaves."""
    filled = [sum((each.tokens + i) % groups.size == 0 for each in walked) for i in range(iterations)]
    return [(groups.full + groups.window) * number for number in filled]


def left_behind(walked: list[Walked], groups: BlockGroups, iterations: int) -> list[int]:
    """Blocks of windowed layers that nobody sees any more after each of them: the newest token sees the window."""

    def unseen(tokens: int) -> int:
        return max(0, tokens - groups.window_tokens + 1) // groups.size

    steps = [[unseen(each.tokens + i + 1) - unseen(each.tokens + i) for each in walked] for i in range(iterations)]
    return [groups.window * sum(step) for step in steps]


def iterations_that_repeat(due: list[int], left: list[int], free: int, awaited: int) -> int:
    """How many iterations find their blocks and begin with fewer than are awaited, one after another."""
    for number, (taken, freed) in enumerate(zip(due, left, strict=True)):
        if taken > free or free >= awaited:
            return number
        free += freed - taken
    return len(due)


@settings(max_examples=80, derandomize=True, deadline=None, database=None)
@given(
    st.lists(decodes(), max_size=12),
    st.sampled_from([1, 2, 5, 16]),
    st.sampled_from([None, 1, 24, 50]),
    st.sampled_from([(1, 0), (1, 1), (2, 5), (0, 1)]),
    st.integers(0, 40),
    st.integers(1, 50),
    st.sampled_from([1000, 1000, 30, 12]),
)
def test_a_batch_is_the_sum_over_its_sequences(
    joining: list[tuple[int, int, int, bool]],
    block_size: int,
    window: int | None,
    kinds: tuple[int, int],
    free: int,
    most: int,
    awaited: int,
) -> None:
    groups = BlockGroups(block_size, *kinds, window) if window is not None else BlockGroups(block_size)
    clock = IterationClock(groups, window)
    walked: list[Walked] = []
    for iteration in range(LAST):
        assert (clock.iteration, clock.count) == (iteration, len(walked))
        contexts = [each.tokens + 1 for each in walked]
        assert clock.context() == sum(contexts)
        assert clock.window_context() == sum(min(context, window or context) for context in contexts)
        assert clock.growing() == sum(window is None or context <= window for context in contexts)
        due, left = needed(walked, groups, most), left_behind(walked, groups, most)
        assert clock.blocks_due() == due[0]
        assert clock.blocks_over(most) == sum(due)
        same = (
            most
            if window is None
            else min([most, *(window - each.tokens - 1 for each in walked if each.tokens < window)])
        )
        if same > 0:
            assert clock.left_over(same) == sum(left[:same])
            expected = iterations_that_repeat(due[:same], left[:same], free, awaited)
            assert clock.iterations_within(free, same, awaited) == expected
        if walked:
            assert clock.next_leaving() == min(each.sequence.leaves for each in walked)
        crossings = [iteration + window + 1 - c for c in contexts if c <= window] if window is not None else []
        assert clock.next_crossing() == min(crossings, default=None)
        for early in [each for each in walked if each.sequence.row < 0 and iteration % 3 == 0]:
            clock.remove(early.sequence)
            walked.remove(early)
        staying = [each for each in walked if each.sequence.leaves > iteration]
        (freed,) = left_behind(staying, groups, 1)
        leaving = [each.sequence for each in walked if each.sequence.leaves == iteration]
        joined = []
        for number, (joins, tokens, stays, early_off) in enumerate(joining):
            if joins == iteration:
                sequence = a_sequence(-1 - number if early_off else number, leaves=iteration + stays)
                sequence.finishes = sequence.leaves
                joined.append(Walked(sequence, tokens))
        assert clock.advance() == leaving
        assert clock.left_blocks() == freed
        for each in joined:
            clock.join(each.sequence, each.tokens, iteration + 1)
        walked = [*(Walked(each.sequence, each.tokens + 1) for each in staying), *joined]


@settings(max_examples=60, derandomize=True, deadline=None, database=None)
@given(st.lists(st.tuples(st.integers(1, 70), st.integers(9, 30)), min_size=1), st.integers(1, 8))
def test_a_leap_is_as_many_steps(joining: list[tuple[int, int]], iterations: int) -> None:
    clocks = IterationClock(BlockGroups(16), 200), IterationClock(BlockGroups(16), 200)
    for clock in clocks:
        for row, (tokens, leaves) in enumerate(joining):
            clock.join(a_sequence(row, leaves=leaves, finishes=leaves), tokens, 0)
    stepped, leaped = clocks
    for _ in range(iterations):
        assert stepped.advance() == []
    assert leaped.leap(iterations) == []
    for query in ("iteration", "count"):
        assert getattr(leaped, query) == getattr(stepped, query)
    for question in ("context", "window_context", "blocks_due", "next_leaving", "next_crossing"):
        assert getattr(leaped, question)() == getattr(stepped, question)()


def test_a_sequence_that_stops_stays_planned_until_the_stop_is_seen() -> None:
    clock = IterationClock(BlockGroups(16), None)
    late = a_sequence(finishes=1, leaves=2)
    clock.join(late, 10, 0)
    clock.advance()
    assert clock.stopping[1] == [late]
    assert clock.advance() == []
    assert clock.advance() == [late]
