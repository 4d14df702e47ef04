"""Prefix caching without token ids and, for what nobody else can share, without blocks.

A prompt names streams of tokens; two tokens are equal iff stream and index are. A block's key stands for all tokens up
to its end, interned as (key of the block before, pieces of streams in the block) -> int.

vLLM's free list has two parts: blocks that hold nothing worth finding, reused last in first out, and behind them the
blocks that do, least recently released first. The first part is only a number here. In the second, blocks whose keys
other requests may ask for stand one by one; the blocks of a prompt's private rest, which only the same request can find
again after a preemption, stand as one run a release. A request whose tokens are all its own costs the same at any
length.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from llmsim.engine.sequence import Sequence
from llmsim.workload.table import RequestTable

Piece = tuple[int, int, int]
"""Stream, index of the first token, tokens."""

_FEW_KEYS = 1 << 18
"""Interned keys that are kept without a look at which are still of use."""


@dataclass(slots=True, eq=False)
class _Run:
    """Released private blocks ``first .. last - 1`` of one request; eviction takes the last first."""

    row: int
    first: int
    last: int


class PromptKeys:
    """The keys of every request's blocks, made as they are asked for. One for all replicas of a block size."""

    def __init__(self, table: RequestTable, block_size: int) -> None:
        self.block_size = block_size
        self._table = table
        self._shared_streams = _shared_streams(table)
        self._interned: dict[tuple[int, tuple[Piece, ...]], int] = {}
        self._next = 0
        self._chains: dict[int, list[int]] = {}
        self._users: list[PrefixCache] = []
        self._limit = _FEW_KEYS

    def shared_tokens(self, row: int) -> int:
        """Leading tokens of a request whose streams more than one request names, outputs to come included."""
        shared = 0
        for stream, _, tokens in self._pieces(row):
            if stream not in self._shared_streams:
                return shared
            shared += tokens
        if self.has_segments(row) and -1 - row in self._shared_streams:
            shared += int(self._table.output_tokens[row])
        return shared

    def has_segments(self, row: int) -> bool:
        """Whether the request names its prompt's streams; otherwise it is one stream of its own."""
        offsets = self._table.segment_offsets
        return len(offsets) > 1 and bool(offsets[row + 1] > offsets[row])

    def outputs_named(self, row: int) -> list[int]:
        """The requests whose outputs the prompt of ``row`` names."""
        return [-1 - stream for stream, _, _ in self._pieces(row) if stream < 0]

    def chain(self, row: int, blocks: int) -> list[int]:
        """The keys of the first ``blocks`` blocks, all within the shared tokens of the request."""
        chain = self._chains.setdefault(row, [])
        if len(chain) < blocks:
            self._extend(row, chain, blocks)
        return chain

    def forget(self, row: int) -> None:
        """Drop the request's keys: it has ended. Blocks that hold them keep them."""
        self._chains.pop(row, None)

    def _pieces(self, row: int) -> list[Piece]:
        if not self.has_segments(row):
            return []
        table = self._table
        first, last = int(table.segment_offsets[row]), int(table.segment_offsets[row + 1])
        return merged(
            [
                (int(table.segment_stream[i]), int(table.segment_start[i]), int(table.segment_tokens[i]))
                for i in range(first, last)
            ]
        )

    def _extend(self, row: int, chain: list[int], blocks: int) -> None:
        pieces = [*self._pieces(row), (-1 - row, 0, int(self._table.output_tokens[row]))]
        parent = chain[-1] if chain else -1
        for block in _blocks(pieces, len(chain), blocks, self.block_size):
            parent = self._intern(parent, block)
            chain.append(parent)

    def used_by(self, cache: "PrefixCache") -> None:
        """Keys that ``cache`` holds must be kept."""
        self._users.append(cache)

    def _intern(self, parent: int, pieces: tuple[Piece, ...]) -> int:
        key = self._interned.setdefault((parent, pieces), self._next)
        if key == self._next:
            self._next += 1
            if len(self._interned) > self._limit:
                self._purge(key)
        return key

    def _purge(self, newest: int) -> None:
        """Forget keys that no block holds and no request has, unless they lead to one that is kept.

        A prefix whose keys are forgotten gets new ones; no block holds it, so that nothing is lost.
        """
        kept = {newest, *(key for chain in self._chains.values() for key in chain)}
        for cache in self._users:
            kept.update(cache.keys_held())
        newer_first = sorted(self._interned.items(), key=lambda item: -item[1])
        for (parent, _), key in newer_first:
            if key in kept:
                kept.add(parent)
        self._interned = {pieces: key for pieces, key in self._interned.items() if key in kept}
        self._limit = max(_FEW_KEYS, 2 * len(self._interned))


def merged(pieces: list[Piece]) -> list[Piece]:
    """Adjacent pieces of one stream joined, so that any cutting of a prompt gives the same keys."""
    result: list[Piece] = []
    for stream, start, tokens in pieces:
        if result and result[-1][0] == stream and result[-1][1] + result[-1][2] == start:
            result[-1] = (stream, result[-1][1], result[-1][2] + tokens)
        elif tokens:
            result.append((stream, start, tokens))
    return result


def _blocks(pieces: list[Piece], first: int, last: int, size: int) -> Iterator[tuple[Piece, ...]]:
    """The pieces that each of the blocks ``first .. last - 1`` of ``size`` tokens is made of."""
    index, offset = 0, first * size
    while offset >= pieces[index][2]:
        offset -= pieces[index][2]
        index += 1
    for _ in range(first, last):
        block, lacking = [], size
        while lacking:
            stream, start, length = pieces[index]
            tokens = min(lacking, length - offset)
            block.append((stream, start + offset, tokens))
            lacking -= tokens
            offset += tokens
            if offset == length:
                index, offset = index + 1, 0
        yield tuple(block)


def _shared_streams(table: RequestTable) -> frozenset[int]:
    """Streams that more than one request has: named by two prompts, or generated by one and named by another."""
    if len(table.segment_offsets) <= 1:
        return frozenset()
    rows = np.repeat(np.arange(len(table)), np.diff(table.segment_offsets))
    named = np.unique(np.stack([table.segment_stream, rows]), axis=1)[0]
    streams, counts = np.unique(named, return_counts=True)
    return frozenset(streams[(counts > 1) | (streams < 0)].tolist())


class PrefixCache:
    """KV memory in which released blocks can be found again until they are reused. See ``KvCache``."""

    __slots__ = (
        "_blank",
        "_copies",
        "_keys",
        "_next",
        "_reusable",
        "_runs",
        "_users",
        "blocks",
        "free",
        "keys",
    )

    def __init__(self, blocks: int, keys: PromptKeys) -> None:
        self.blocks = blocks
        self.free = blocks
        self.keys = keys
        self._blank = blocks
        self._reusable: OrderedDict[int | _Run, None] = OrderedDict()
        """Free blocks that can be found, least recently released first: shared ones by number, private runs."""
        self._runs: dict[int, list[_Run]] = {}
        self._copies: dict[int, list[int]] = {}
        """Blocks that hold a key, oldest first."""
        self._keys: dict[int, int] = {}
        self._users: dict[int, int] = {}
        self._next = 0
        keys.used_by(self)

    def keys_held(self) -> Iterable[int]:
        """Keys that some block holds."""
        return self._copies

    def lookup(self, sequence: Sequence) -> tuple[int, int]:
        """The longest cached prefix, at most all but the last token: hits, and how many of them are free."""
        size = self.keys.block_size
        most = (sequence.length - 1) // size
        shared = min(sequence.shared_tokens // size, most)
        hits = free = 0
        if shared:
            copies, users = self._copies, self._users
            for key in self.keys.chain(sequence.row, shared)[:shared]:
                if key not in copies:
                    return hits, free
                free += not users[copies[key][0]]
                hits += 1
        if hits < most and sequence.row in self._runs:
            private = self._private_hits(sequence.row, hits, most)
            return hits + private, free + private
        return hits, free

    def admit(self, sequence: Sequence, hits: int, new_blocks: int) -> None:
        """Take the hits out of reuse, and new blocks from what is free."""
        size = self.keys.block_size
        shared = min(sequence.shared_tokens // size, hits)
        sequence.blocks = []
        if shared:
            for key in self.keys.chain(sequence.row, shared)[:shared]:
                block = self._copies[key][0]
                if not self._users[block]:
                    del self._reusable[block]
                    self.free -= 1
                self._users[block] += 1
                sequence.blocks.append(block)
        if hits > shared:
            self._take_private(sequence.row, shared, hits)
        self.take(new_blocks)

    def take(self, new_blocks: int) -> None:
        """Reuse blocks that hold nothing first, then forget the least recently released ones."""
        self.free -= new_blocks
        blank = self._blank
        if new_blocks <= blank:
            self._blank = blank - new_blocks
            return
        self._blank = 0
        self._evict(new_blocks - blank)

    def register(self, sequence: Sequence, tokens: int) -> None:
        """Register the sequence's full shared blocks; private ones need no entry while they are held."""
        size = self.keys.block_size
        full = min(tokens, sequence.shared_tokens) // size
        blocks = sequence.blocks
        assert blocks is not None
        if full <= len(blocks):
            return
        for key in self.keys.chain(sequence.row, full)[len(blocks) : full]:
            block = self._next
            self._next += 1
            self._keys[block] = key
            self._users[block] = 1
            self._copies.setdefault(key, []).append(block)
            blocks.append(block)

    def release(self, sequence: Sequence, held: int, tokens: int) -> None:
        """Blocks without a key become blank; the others can be reused, the sequence's last block first."""
        self.register(sequence, tokens)
        full = tokens // self.keys.block_size
        blocks = sequence.blocks
        assert blocks is not None
        self._blank += held - full
        self.free += held - full
        if full > len(blocks):
            run = _Run(sequence.row, len(blocks), full)
            self._reusable[run] = None
            self._runs.setdefault(sequence.row, []).append(run)
            self.free += full - len(blocks)
        for block in reversed(blocks):
            self._users[block] -= 1
            if not self._users[block]:
                self._reusable[block] = None
                self.free += 1
        sequence.blocks = None

    def cached_keys(self, registered: list[tuple[Sequence, int]]) -> int:
        """Distinct keys: shared ones, and private blocks held or released, copies counted once."""
        private: set[tuple[int, int]] = set()
        for sequence, tokens in registered:
            self.register(sequence, tokens)
            assert sequence.blocks is not None
            private.update((sequence.row, i) for i in range(len(sequence.blocks), tokens // self.keys.block_size))
        for row, runs in self._runs.items():
            private.update((row, i) for run in runs for i in range(run.first, run.last))
        return len(self._copies) + len(private)

    def _evict(self, count: int) -> None:
        reusable = self._reusable
        while count:
            oldest = next(iter(reusable))
            if isinstance(oldest, _Run):
                gone = min(count, oldest.last - oldest.first)
                oldest.last -= gone
                count -= gone
                if oldest.last > oldest.first:
                    return
                self._drop_run(oldest)
            else:
                del reusable[oldest]
                self._forget(oldest)
                count -= 1

    def _forget(self, block: int) -> None:
        key = self._keys.pop(block)
        del self._users[block]
        copies = self._copies[key]
        copies.remove(block)
        if not copies:
            del self._copies[key]

    def _drop_run(self, run: _Run) -> None:
        del self._reusable[run]
        runs = self._runs[run.row]
        runs.remove(run)
        if not runs:
            del self._runs[run.row]

    def _private_hits(self, row: int, first: int, most: int) -> int:
        """How many private blocks from number ``first`` on are there without a gap."""
        runs = self._runs[row]
        found = first
        while found < most and any(run.first <= found < run.last for run in runs):
            found += 1
        return found - first

    def _take_private(self, row: int, first: int, last: int) -> None:
        """Take the released private blocks ``first .. last - 1`` of a request out of reuse, from its oldest runs.

        A younger run may hold copies of blocks just taken from an older one; they become blank.
        """
        wanted = first
        for run in list(self._runs[row]):
            if not run.first <= wanted < run.last:
                continue
            self._blank += wanted - run.first
            run.first = min(run.last, last)
            self.free -= run.first - wanted
            wanted = run.first
            if run.first == run.last:
                self._drop_run(run)
