"""The identity of prompts' KV blocks, without token ids.

A prompt names streams of tokens; two tokens are equal iff stream and index are. A block's key stands for all tokens up
to its end, interned as (key of the block before, pieces of streams in the block) -> int.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np

from llmsim.workload.table import RequestTable

Piece = tuple[int, int, int]
"""Stream, index of the first token, tokens."""

_FEW_KEYS = 1 << 18
"""Interned keys that are kept without a look at which are still of use."""


class KeyUser(Protocol):
    """Who holds keys."""

    def keys_held(self) -> Iterable[int]:
        """Keys that must be kept."""
        ...


class PromptKeys:
    """The keys of every request's blocks, made as they are asked for. One for all replicas of a block size."""

    def __init__(self, table: RequestTable, block_size: int) -> None:
        self.block_size = block_size
        self._table = table
        self._shared_streams = _shared_streams(table)
        self._interned: dict[tuple[int, tuple[Piece, ...]], int] = {}
        self._next = 0
        self._chains: dict[int, list[int]] = {}
        self._users: list[KeyUser] = []
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

    def used_by(self, cache: KeyUser) -> None:
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
