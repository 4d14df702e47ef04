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


def needed(walked: list[Walked], block_size: int, iterations: int) -> list[int]:
    """KV blocks each of the next iterations takes if nobody leaves."""
    return [sum((each.tokens + i) % block_size == 0 for each in walked) for i in range(iterations)]


@settings(max_examples=80, derandomize=True, deadline=None, database=None)
@given(
    st.lists(decodes(), max_size=12),
    st.sampled_from([1, 2, 5, 16]),
    st.sampled_from([None, 1, 24, 50]),
    st.integers(0, 40),
    st.integers(1, 50),
)
def test_a_batch_is_the_sum_over_its_sequences(
    joining: list[tuple[int, int, int, bool]], block_size: int, window: int | None, free: int, most: int
) -> None:
    clock = IterationClock(BlockGroups(block_size), window)
    walked: list[Walked] = []
    for iteration in range(LAST):
        assert (clock.iteration, clock.count) == (iteration, len(walked))
        contexts = [each.tokens + 1 for each in walked]
        assert clock.context() == sum(contexts)
        assert clock.window_context() == sum(min(context, window or context) for context in contexts)
        assert clock.growing() == sum(window is None or context <= window for context in contexts)
        due = needed(walked, block_size, most)
        assert clock.blocks_due() == due[0]
        assert clock.blocks_over(most) == sum(due)
        within = clock.iterations_within(free, most)
        assert sum(due[:within]) <= free
        assert within == most or sum(due[: within + 1]) > free
        if walked:
            assert clock.next_leaving() == min(each.sequence.leaves for each in walked)
        crossings = [iteration + window + 1 - c for c in contexts if c <= window] if window is not None else []
        assert clock.next_crossing() == min(crossings, default=None)
        for early in [each for each in walked if each.sequence.row < 0 and iteration % 3 == 0]:
            clock.remove(early.sequence)
            walked.remove(early)
        staying = [each for each in walked if each.sequence.leaves > iteration]
        leaving = [each.sequence for each in walked if each.sequence.leaves == iteration]
        for number, (joins, tokens, stays, early_off) in enumerate(joining):
            if joins == iteration:
                sequence = a_sequence(-1 - number if early_off else number, leaves=iteration + stays)
                sequence.finishes = sequence.leaves
                clock.join(sequence, tokens, iteration + 1)
                staying.append(Walked(sequence, tokens - 1))
        assert clock.advance() == leaving
        walked = [Walked(each.sequence, each.tokens + 1) for each in staying]


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
