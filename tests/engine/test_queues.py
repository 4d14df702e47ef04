"""The order of the waiting queue, against sorting."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmsim.engine.queues import ArrivalQueue, PriorityQueue, WaitingQueue
from llmsim.engine.sequence import Sequence
from tests.factories import a_sequence


def rows(sequences: list[Sequence]) -> list[int]:
    """Who they are."""
    return [sequence.row for sequence in sequences]


def test_first_come_first_served_with_the_preempted_in_front() -> None:
    queue = ArrivalQueue()
    for row in (0, 1, 2):
        queue.add(a_sequence(row))
    queue.put_back(a_sequence(7))
    queue.put_back(a_sequence(8))
    assert rows(queue.listed()) == [8, 7, 0, 1, 2]
    assert queue.head().row == 8


@settings(max_examples=100, derandomize=True, deadline=None, database=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.booleans()), min_size=1, max_size=20))
def test_the_most_important_then_the_earliest_then_the_lowest_row(waiting: list[tuple[int, int, bool]]) -> None:
    queue = PriorityQueue()
    for row, (priority, arrival_ns, preempted) in enumerate(waiting):
        sequence = a_sequence(row, priority=priority, arrival_ns=arrival_ns)
        before = [(each.priority, each.arrival_ns, each.row) for each in queue.listed()]
        assert queue.would_lead(sequence) == all((priority, arrival_ns, row) < each for each in before)
        (queue.put_back if preempted else queue.add)(sequence)
    expected = sorted(range(len(waiting)), key=lambda row: (*waiting[row][:2], row))
    assert rows(queue.listed()) == expected
    assert queue.head().row == expected[0]


@pytest.mark.parametrize("kind", [ArrivalQueue, PriorityQueue])
def test_one_taken_out_of_the_middle_leaves_the_order_of_the_others(kind: type[WaitingQueue]) -> None:
    queue = kind()
    sequences = [a_sequence(row) for row in range(9)]
    for sequence in sequences:
        queue.add(sequence)
    queue.remove(sequences[4])
    queue.remove(sequences[0])
    assert rows(queue.listed()) == [1, 2, 3, 5, 6, 7, 8]
    assert len(queue) == 7


def test_a_newcomer_leads_only_an_empty_line() -> None:
    queue = ArrivalQueue()
    assert queue.would_lead(a_sequence(0))
    queue.add(a_sequence(0))
    assert not queue.would_lead(a_sequence(1))
