"""The waiting queue in the two orders that servers use."""

import heapq
from collections import deque
from typing import Protocol

from llmsim.engine.sequence import Sequence


class WaitingQueue(Protocol):
    """Requests that wait, in the order of the policy."""

    def __len__(self) -> int: ...

    def head(self) -> Sequence:
        """The next to be admitted."""
        ...

    def take(self) -> Sequence:
        """Take the next to be admitted."""
        ...

    def add(self, sequence: Sequence) -> None:
        """A new request."""
        ...

    def put_back(self, sequence: Sequence) -> None:
        """A preempted request."""
        ...

    def remove(self, sequence: Sequence) -> None:
        """Take one out wherever it stands."""
        ...

    def would_lead(self, sequence: Sequence) -> bool:
        """Whether a new request would be the next to be admitted."""
        ...

    def listed(self) -> list[Sequence]:
        """All, in order."""
        ...


class ArrivalQueue(deque[Sequence]):
    """First come, first served; a preempted request goes to the head."""

    __slots__ = ()

    def head(self) -> Sequence:
        """The next to be admitted."""
        return self[0]

    def take(self) -> Sequence:
        """Take the next to be admitted."""
        return self.popleft()

    def add(self, sequence: Sequence) -> None:
        """A new request, to the end."""
        self.append(sequence)

    def put_back(self, sequence: Sequence) -> None:
        """A preempted request, to the head."""
        self.appendleft(sequence)

    def would_lead(self, sequence: Sequence) -> bool:
        """Whether a new request would be the next to be admitted."""
        return not self

    def listed(self) -> list[Sequence]:
        """All, in order."""
        return list(self)


class PriorityQueue:
    """Smallest (priority, arrival, row) first, preempted requests too."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, Sequence]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def head(self) -> Sequence:
        """The next to be admitted."""
        return self._heap[0][3]

    def take(self) -> Sequence:
        """Take the next to be admitted."""
        return heapq.heappop(self._heap)[3]

    def add(self, sequence: Sequence) -> None:
        """A new request, to its place."""
        heapq.heappush(self._heap, (sequence.priority, sequence.arrival_ns, sequence.row, sequence))

    put_back = add

    def remove(self, sequence: Sequence) -> None:
        """Take one out wherever it stands."""
        self._heap = [entry for entry in self._heap if entry[3] is not sequence]
        heapq.heapify(self._heap)

    def would_lead(self, sequence: Sequence) -> bool:
        """Whether a new request would be the next to be admitted."""
        return not self._heap or (sequence.priority, sequence.arrival_ns, sequence.row) < self._heap[0][:3]

    def listed(self) -> list[Sequence]:
        """All, in order."""
        return [entry[3] for entry in sorted(self._heap, key=lambda entry: entry[:3])]
