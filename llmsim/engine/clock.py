"""The iteration clock: a batch of decodes as a few numbers, so that an iteration never walks its sequences.

A decoding sequence grows by one token an iteration. It joins with ``offset = context - iteration`` and the iterations
in which it ends; from then on its context is ``offset + iteration`` and nothing is written until it leaves. The batch
is then how many there are, the sum of their offsets, and one counter for each residue of the offset modulo the block
size, which tells how many sequences need a new KV block in any iteration.
"""

import heapq

from llmsim.engine.gaps import GapHistory
from llmsim.engine.sequence import Sequence
from llmsim.units import TICK_BITS


class IterationClock:
    """The decoding sequences of one engine, and the number of the iteration to be scheduled next."""

    __slots__ = (
        "_ends",
        "_per_sequence",
        "_window_heap",
        "block_size",
        "capped",
        "count",
        "ended_ticks",
        "gaps",
        "growing_offsets",
        "iteration",
        "leaving",
        "offsets",
        "residues",
        "stopping",
        "window",
        "window_crossings",
    )

    def __init__(self, block_size: int, window: int | None, *, takes_blocks: bool = True) -> None:
        self.block_size = block_size
        self._per_sequence = 1 if takes_blocks else 0
        self.window = window
        self.iteration = 0
        self.gaps = GapHistory()
        self.ended_ticks = 0
        """End of the last of its iterations whose tokens have been delivered."""
        self.count = 0
        self.offsets = 0
        self.residues = [0] * block_size
        self.leaving: dict[int, list[Sequence]] = {}
        """Sequences by the last iteration they are planned in."""
        self._ends: list[int] = []
        self.stopping: dict[int, list[Sequence]] = {}
        """Sequences that stay in the plan after the iteration that samples their last token, by that iteration."""
        self.capped = 0
        self.growing_offsets = 0
        self.window_crossings: dict[int, list[Sequence]] = {}
        self._window_heap: list[int] = []

    def join(self, sequence: Sequence, context: int, first: int) -> None:
        """Let ``sequence`` decode from iteration ``first`` on, before which its context is ``context`` tokens."""
        sequence.offset = offset = context - first
        sequence.joined = first
        sequence.clock = self
        sequence.on_clock = True
        self.count += 1
        self.offsets += offset
        self.residues[offset % self.block_size] += self._per_sequence
        leaves = sequence.leaves
        if leaves in self.leaving:
            self.leaving[leaves].append(sequence)
        else:
            self.leaving[leaves] = [sequence]
            heapq.heappush(self._ends, leaves)
        if first <= sequence.finishes < leaves:
            self.stopping.setdefault(sequence.finishes, []).append(sequence)
        if self.window is not None:
            self._join_window(sequence, first)

    def remove(self, sequence: Sequence) -> None:
        """Take ``sequence`` off the clock before its time."""
        leaving = self.leaving[sequence.leaves]
        leaving.remove(sequence)
        if not leaving:
            del self.leaving[sequence.leaves]
        if sequence in (stopping := self.stopping.get(sequence.finishes, [])):
            stopping.remove(sequence)
        self._drop(sequence)

    def advance(self) -> list[Sequence]:
        """Count the scheduled iteration; returns the sequences for which it was the last, now off the clock."""
        last = self.iteration
        self.iteration = last + 1
        if self.window_crossings:
            self._cross_window(last + 1)
        gone = self.leaving.pop(last, None)
        if gone is None:
            return []
        for sequence in gone:
            self._drop(sequence)
        return gone

    def leap(self, iterations: int) -> list[Sequence]:
        """Count ``iterations`` scheduled iterations, in which nobody leaves but after the last one."""
        self.iteration += iterations - 1
        return self.advance()

    def longest_gap_ns(self, sequence: Sequence) -> int:
        """The longest time between two of the iterations in which a sequence has decoded here since it joined."""
        return self.gaps.longest_since(sequence.joined) >> TICK_BITS

    def context(self) -> int:
        """Sum of the contexts after this iteration: the tokens its decodes attend to."""
        return self.offsets + self.count * (self.iteration + 1)

    def window_context(self) -> int:
        """The same with each context cut at the sliding window."""
        if self.window is None:
            return self.context()
        growing = self.count - self.capped
        return self.growing_offsets + growing * (self.iteration + 1) + self.capped * self.window

    def growing(self) -> int:
        """How many decodes see their windowed context grow by one an iteration."""
        return self.count - self.capped

    def blocks_due(self) -> int:
        """KV blocks this iteration's decodes need: one for each context that fills its last block."""
        return self.residues[-self.iteration % self.block_size]

    def blocks_over(self, iterations: int) -> int:
        """KV blocks the decodes need over this and the following iterations."""
        cycles, rest = divmod(iterations, self.block_size)
        needed = cycles * self.count * self._per_sequence
        if rest:
            residues, last = self.residues, -self.iteration % self.block_size + 1
            first = last - rest
            needed += sum(residues[first:last]) if first >= 0 else sum(residues[:last]) + sum(residues[first:])
        return needed

    def iterations_within(self, free_blocks: int, most: int) -> int:
        """The largest number of iterations, up to ``most``, whose decodes need no more than ``free_blocks``."""
        size = self.block_size
        if not self._per_sequence or (most + size - 1) // size * self.count <= free_blocks:
            return most
        cycles = min(free_blocks // self.count, most // size)
        done, left = cycles * size, free_blocks - cycles * self.count
        start = -self.iteration
        while done < most and (due := self.residues[(start - done) % size]) <= left:
            left -= due
            done += 1
        return done

    def next_leaving(self) -> int:
        """The next iteration that is a sequence's last (some sequence must be on the clock)."""
        ends = self._ends
        while ends[0] not in self.leaving:
            heapq.heappop(ends)
        return ends[0]

    def next_crossing(self) -> int | None:
        """The next iteration in which a windowed context does not grow any more."""
        heap = self._window_heap
        while heap and heap[0] not in self.window_crossings:
            heapq.heappop(heap)
        return heap[0] if heap else None

    def _drop(self, sequence: Sequence) -> None:
        offset = sequence.offset
        sequence.on_clock = False
        self.count -= 1
        self.offsets -= offset
        self.residues[offset % self.block_size] -= self._per_sequence
        if self.window is not None:
            self._drop_window(sequence)

    def _crossing(self, sequence: Sequence) -> int:
        """The first iteration in which the sequence attends to no more tokens than in the one before."""
        assert self.window is not None
        return self.window - sequence.offset

    def _join_window(self, sequence: Sequence, first: int) -> None:
        crossing = self._crossing(sequence)
        if crossing <= first:
            self.capped += 1
            return
        self.growing_offsets += sequence.offset
        if crossing not in self.window_crossings:
            self.window_crossings[crossing] = []
            heapq.heappush(self._window_heap, crossing)
        self.window_crossings[crossing].append(sequence)

    def _cross_window(self, iteration: int) -> None:
        for sequence in self.window_crossings.pop(iteration, ()):
            self.growing_offsets -= sequence.offset
            self.capped += 1

    def _drop_window(self, sequence: Sequence) -> None:
        crossing = self._crossing(sequence)
        waiting = self.window_crossings.get(crossing, [])
        if sequence not in waiting:
            self.capped -= 1
            return
        waiting.remove(sequence)
        if not waiting:
            del self.window_crossings[crossing]
        self.growing_offsets -= sequence.offset
