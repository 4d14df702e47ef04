"""The iteration clock: a batch of decodes as a few numbers, so that an iteration never walks its sequences.

A decoding sequence grows by one token an iteration. It joins with ``offset = context - iteration`` and the iterations
in which it ends; from then on its context is ``offset + iteration`` and nothing is written until it leaves. The batch
is then how many there are, the sum of their offsets, and one counter for each residue of the offset modulo the block
size, which tells how many KV blocks they need in any iteration. Where layers have a sliding window a second one tells
how many blocks are left behind.
"""

import heapq
from itertools import chain

from llmsim.engine.gaps import GapHistory
from llmsim.engine.kv import BlockGroups
from llmsim.engine.sequence import Sequence
from llmsim.units import TICK_BITS

MANY = 1 << 62
"""More than there are blocks."""


class IterationClock:
    """The decoding sequences of one engine, and the number of the iteration to be scheduled next."""

    __slots__ = (
        "_crossings",
        "_ends",
        "_growth",
        "_keeping",
        "_left_behind",
        "block_size",
        "capped",
        "count",
        "delayed",
        "ended_ticks",
        "gaps",
        "groups",
        "growing_offsets",
        "iteration",
        "leaving",
        "offsets",
        "residues",
        "stopping",
        "window",
    )

    def __init__(self, groups: BlockGroups, window: int | None, *, takes_blocks: bool = True) -> None:
        self.groups = groups
        self.block_size = groups.size
        self._growth = groups.width if takes_blocks else 0
        """Blocks that a sequence takes each time it fills the last ones."""
        self.window = window
        self.iteration = 0
        self.gaps = GapHistory()
        self.ended_ticks = 0
        """End of the last of its iterations whose tokens have been delivered."""
        self.count = 0
        self.delayed: tuple[Sequence, ...] = ()
        """Decodes that its last plan left out."""
        self.offsets = 0
        self.residues = [0] * groups.size
        """Blocks by the offset of their sequences modulo the block size: entry ``-iteration`` is needed in it."""
        self.leaving: dict[int, list[Sequence]] = {}
        """Sequences by the last iteration they are planned in: what ``Dates`` does, without its calls, as every request
        and every iteration comes by."""
        self._ends: list[int] = []
        self.stopping: dict[int, list[Sequence]] = {}
        """Sequences that stay in the plan after the iteration that samples their last token, by that iteration."""
        self.capped = 0
        self.growing_offsets = 0
        self._crossings = Dates()
        """Sequences by the first iteration in which they attend to no more tokens than in the one before."""
        self._left_behind = [0] * groups.size
        """Blocks by offset: those at ``window - 1 - iteration`` are seen by nobody from that iteration on."""
        self._keeping = Dates()
        """Sequences that keep all their blocks of windowed layers, which others may find, until an iteration."""

    def join(self, sequence: Sequence, context: int, first: int) -> None:
        """Let ``sequence`` decode from iteration ``first`` on, before which its context is ``context`` tokens."""
        sequence.offset = offset = context - first
        sequence.joined = first
        sequence.clock = self
        sequence.on_clock = True
        self.count += 1
        self.offsets += offset
        self.residues[offset % self.block_size] += self._growth
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
        if self.window is not None:
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

    def blocks_due(self, later: int = 0) -> int:
        """KV blocks the decodes need so many iterations later than this: those of each context that fills its last
        ones."""
        return self.residues[-(self.iteration + later) % self.block_size]

    def left_blocks(self, later: int = 0) -> int:
        """Blocks of windowed layers that they have left behind when so many iterations later comes."""
        return self._left_behind[(self._leaving_offset() - later) % self.block_size]

    def blocks_over(self, iterations: int) -> int:
        """KV blocks the decodes need over this and the following iterations."""
        return self._over(self.residues, -self.iteration, iterations, self.count * self._growth)

    def left_over(self, iterations: int) -> int:
        """Blocks of windowed layers that they leave behind after this and the following iterations."""
        return self._over(self._left_behind, self._leaving_offset() - 1, iterations, sum(self._left_behind))

    def changes(self) -> list[int]:
        """How many more blocks are held in the next iterations than in those before, over a cycle of a block size."""
        due = _downwards(self.residues, -self.iteration)
        if not self.groups.window:
            return due
        return [
            more - less for more, less in zip(due, _downwards(self._left_behind, self._leaving_offset()), strict=True)
        ]

    def iterations_within(self, free_blocks: int, most: int, awaited_blocks: int = MANY) -> int:
        """The largest number of iterations, up to ``most``, whose decodes find the blocks they need.

        At first ``free_blocks`` are there; none of the iterations begins with ``awaited_blocks`` of them or more.
        """
        size, needed, freed = self.block_size, self.count * self._growth, 0
        if self.groups.window:
            freed = sum(self._left_behind)
        cycles = (most + size - 1) // size
        if cycles * needed <= free_blocks and free_blocks + cycles * freed < awaited_blocks:
            return most
        # A cycle is certainly one of them if its blocks are there at its beginning, and what it frees is not awaited.
        cycles, more = 0, freed - needed
        if needed <= free_blocks and free_blocks + freed < awaited_blocks:
            cycles = most // size
            if more < 0:
                cycles = min(cycles, (free_blocks - needed) // -more + 1)
            elif more > 0:
                cycles = min(cycles, (awaited_blocks - 1 - free_blocks - freed) // more + 1)
        done, free = cycles * size, free_blocks + cycles * more
        residues, behind = self.residues, self._left_behind
        due, left = -self.iteration, self._leaving_offset() - 1
        while done < most and (needed := residues[(due - done) % size]) <= free < awaited_blocks:
            free += behind[(left - done) % size] - needed
            done += 1
        return done

    def next_leaving(self) -> int:
        """The next iteration that is a sequence's last (some sequence must be on the clock)."""
        ends = self._ends
        while ends[0] not in self.leaving:
            heapq.heappop(ends)
        return ends[0]

    def next_crossing(self) -> int | None:
        """The next iteration in which a windowed context does not grow any more or blocks kept so far are left."""
        return min(chain(self._crossings.next(), self._keeping.next()), default=None)

    def take_past_keeping(self) -> list[Sequence]:
        """Sequences that leave the last of the blocks behind which others may find; blocks follow one by one."""
        past = self._keeping.take(self.iteration)
        for sequence in past:
            self._left_behind[sequence.offset % self.block_size] += self.groups.window
        return past

    def _over(self, counters: list[int], newest: int, iterations: int, in_a_cycle: int) -> int:
        """Sum of the counters over so many iterations, the first of which stands at ``newest``."""
        cycles, rest = divmod(iterations, self.block_size)
        total = cycles * in_a_cycle
        if rest:
            last = newest % self.block_size + 1
            first = last - rest
            total += sum(counters[first:last]) if first >= 0 else sum(counters[:last]) + sum(counters[first:])
        return total

    def _leaving_offset(self) -> int:
        """Offset of the sequences that leave blocks behind when this iteration comes."""
        return self.groups.window_tokens - 1 - self.iteration

    def _drop(self, sequence: Sequence) -> None:
        offset = sequence.offset
        sequence.on_clock = False
        self.count -= 1
        self.offsets -= offset
        self.residues[offset % self.block_size] -= self._growth
        if self.window is not None:
            self._drop_window(sequence)

    def _crossing(self, sequence: Sequence) -> int:
        """The first iteration in which the sequence attends to no more tokens than in the one before."""
        assert self.window is not None
        return self.window - sequence.offset

    def _join_window(self, sequence: Sequence, first: int) -> None:
        crossing = self._crossing(sequence)
        if crossing > first:
            self.growing_offsets += sequence.offset
            self._crossings.add(crossing, sequence)
        else:
            self.capped += 1
        if sequence.window_blocks:
            self._keeping.add(self.groups.kept_until(sequence) - sequence.offset, sequence)
        elif crossing <= first:
            self._left_behind[sequence.offset % self.block_size] += self.groups.window

    def _cross_window(self, iteration: int) -> None:
        """Cap the windowed contexts that do not grow in ``iteration``."""
        for sequence in self._crossings.take(iteration):
            self.growing_offsets -= sequence.offset
            self.capped += 1
            if not sequence.window_blocks:
                self._left_behind[sequence.offset % self.block_size] += self.groups.window

    def _drop_window(self, sequence: Sequence) -> None:
        capped = not self._crossings.remove(self._crossing(sequence), sequence)
        if capped:
            self.capped -= 1
        else:
            self.growing_offsets -= sequence.offset
        if sequence.window_blocks:
            self._keeping.remove(self.groups.kept_until(sequence) - sequence.offset, sequence)
        elif capped:
            self._left_behind[sequence.offset % self.block_size] -= self.groups.window


def _downwards(counters: list[int], newest: int) -> list[int]:
    """All the counters, from that of ``newest`` on downwards and round."""
    first = newest % len(counters)
    return counters[first::-1] + counters[:first:-1]


class Dates:
    """Sequences by the iteration in which something becomes of them."""

    __slots__ = ("_heap", "_sequences")

    def __init__(self) -> None:
        self._sequences: dict[int, list[Sequence]] = {}
        self._heap: list[int] = []

    def add(self, iteration: int, sequence: Sequence) -> None:
        """Note one more."""
        if iteration not in self._sequences:
            self._sequences[iteration] = []
            heapq.heappush(self._heap, iteration)
        self._sequences[iteration].append(sequence)

    def remove(self, iteration: int, sequence: Sequence) -> bool:
        """Forget a sequence; whether it was noted."""
        noted = self._sequences.get(iteration, [])
        if sequence not in noted:
            return False
        noted.remove(sequence)
        if not noted:
            del self._sequences[iteration]
        return True

    def take(self, iteration: int) -> list[Sequence]:
        """Those of an iteration, which are noted no longer."""
        return self._sequences.pop(iteration, [])

    def next(self) -> tuple[int, ...]:
        """The next iteration for which any is noted, if there is one."""
        heap = self._heap
        while heap and heap[0] not in self._sequences:
            heapq.heappop(heap)
        return tuple(heap[:1])
