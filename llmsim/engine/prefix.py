"""Prefix caching: KV memory in which released blocks can be found again until they are reused.

vLLM's free list has two parts: blocks that hold nothing worth finding, reused last in first out, and behind them the
blocks that do, least recently released first. The first part is only a number here. In the second, blocks whose keys
other requests may ask for stand one by one; the blocks of a prompt's private rest, which only the same request can find
again after a preemption, stand as one run a release. A request whose tokens are all its own costs the same at any
length.

Groups of layers that keep the whole context hold the same positions, and so do those with a sliding window: the blocks
of all groups of a kind at one position are taken, found and evicted together.
"""

from collections import OrderedDict
from collections.abc import Iterable

from llmsim.engine.kv import BlockGroups
from llmsim.engine.prompt_keys import PromptKeys
from llmsim.engine.sequence import Sequence


class Block:
    """The blocks of like groups of layers at one position, whose key other requests may ask for."""

    __slots__ = ("key", "layers", "users")

    def __init__(self, key: int, layers: "_Layers") -> None:
        self.key = key
        self.layers = layers
        self.users = 1
        """Running sequences that hold it."""


class _Layers:
    """Groups of layers of one kind, and where the blocks are that can be found in them."""

    __slots__ = ("copies", "groups", "reach", "runs")

    def __init__(self, groups: int, reach: int | None = None) -> None:
        self.groups = groups
        """Blocks at one position."""
        self.reach = reach
        """Positions that must be there before the end of a hit; None: all."""
        self.copies: dict[int, list[Block]] = {}
        """Blocks that hold a key, oldest first."""
        self.runs: dict[int, list[_Run]] = {}
        """Released private blocks, by request."""

    def first(self, hits: int) -> int:
        """First position that a hit takes."""
        return 0 if self.reach is None else max(0, hits - self.reach)

    def left(self, sequence: Sequence) -> int:
        """Positions that the sequence has left behind."""
        return 0 if self.reach is None else sequence.left

    def blocks_of(self, sequence: Sequence) -> list[Block]:
        """Blocks of the sequence that others may find, from the first it has not left behind."""
        blocks = sequence.blocks if self.reach is None else sequence.window_blocks
        assert blocks is not None
        return blocks

    def longest(self, keys: list[int], row: int, most: int) -> int:
        """Positions of the longest prefix up to ``most`` that can be found; those of ``keys`` are shared ones."""
        if self.reach is None:
            for position, key in enumerate(keys):
                if key not in self.copies:
                    return position
            return self._private_end(row, len(keys), most)
        end = there = 0
        for position in range(most - 1, -1, -1):
            if not self._holds(keys, row, position):
                there = 0
                continue
            end = end if there else position + 1
            there += 1
            if there == self.reach:
                return end
        return end if there else 0

    def idle(self, keys: list[int], hits: int) -> int:
        """How many blocks of a hit nobody uses."""
        first = self.first(hits)
        copies = self.copies
        shared = sum([not copies[key][0].users for key in keys[first:hits]])
        return self.groups * (shared + max(0, hits - max(first, len(keys))))

    def _holds(self, keys: list[int], row: int, position: int) -> bool:
        if position < len(keys):
            return keys[position] in self.copies
        return any(run.first <= position < run.last for run in self.runs.get(row, ()))

    def _private_end(self, row: int, first: int, most: int) -> int:
        """First position from ``first`` on at which the request's released private blocks end."""
        end = first
        while end < most and self._holds([], row, end):
            end += 1
        return end


class _Run:
    """Released private blocks at positions ``first .. last - 1`` of one request; eviction takes the last first."""

    __slots__ = ("first", "last", "layers", "row")

    def __init__(self, layers: _Layers, row: int, first: int, last: int) -> None:
        self.layers = layers
        self.row = row
        self.first = first
        self.last = last


_NOBODY = -1
"""In place of the request of a run that nobody can find."""


class PrefixCache:
    """KV memory in which released blocks can be found again until they are reused. See ``KvCache``."""

    __slots__ = ("_blank", "_kinds", "_nowhere", "_reusable", "_windowed", "blocks", "free", "keys")

    def __init__(self, blocks: int, keys: PromptKeys, groups: BlockGroups) -> None:
        self.blocks = blocks
        self.free = blocks
        self.keys = keys
        self._blank = blocks
        self._reusable: OrderedDict[Block | _Run, None] = OrderedDict()
        """Free blocks that hold something, least recently released first."""
        self._nowhere = _Layers(1)
        """Of blocks that hold what nobody can find."""
        self._windowed: _Layers | None = None
        self._kinds = [_Layers(groups.full)] if groups.full else []
        if groups.window:
            self._windowed = _Layers(groups.window, max(1, -(-(groups.window_tokens - 1) // groups.size)))
            self._kinds.append(self._windowed)
        keys.used_by(self)

    def keys_held(self) -> Iterable[int]:
        """Keys that some block holds."""
        return {key for layers in self._kinds for key in layers.copies}

    def lookup(self, sequence: Sequence) -> tuple[int, int]:
        """The longest cached prefix, at most all but the last token, and how many of its blocks are free.

        In layers with a sliding window only what the next token attends to must be there. Source: vLLM
        ``v1/core/single_type_kv_cache_manager.py``, ``SlidingWindowManager.find_longest_cache_hit``.
        """
        size, row = self.keys.block_size, sequence.row
        hits = (sequence.length - 1) // size
        shared = min(sequence.shared_tokens // size, hits)
        if not shared and row not in self._kinds[0].runs:
            return 0, 0
        keys = self.keys.chain(row, shared)[:shared] if shared else []
        for layers in self._kinds:
            hits = layers.longest(keys, row, hits)
        return hits, sum([layers.idle(keys, hits) for layers in self._kinds]) if hits else 0

    def admit(self, sequence: Sequence, hits: int, new_blocks: int) -> None:
        """Take the hits out of reuse, and new blocks from what is free."""
        sequence.blocks = []
        if self._windowed is not None:
            sequence.window_blocks = []
        if hits:
            shared = min(sequence.shared_tokens // self.keys.block_size, hits)
            keys = self.keys.chain(sequence.row, shared)[:shared] if shared else []
            for layers in self._kinds:
                first = layers.first(hits)
                layers.blocks_of(sequence).extend([self._share(layers.copies[key][0]) for key in keys[first:]])
                if hits > shared:
                    self._take_private(layers, sequence.row, max(first, shared), hits)
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

    def give_back(self, blocks: int) -> None:
        """Blocks that decodes leave behind are reused after those released before; nobody finds them."""
        if not blocks:
            return
        self.free += blocks
        youngest = next(reversed(self._reusable), None)
        if isinstance(youngest, _Run) and youngest.row == _NOBODY:
            youngest.last += blocks
        else:
            self._reusable[_Run(self._nowhere, _NOBODY, 0, blocks)] = None

    def leave(self, sequence: Sequence, left: int) -> None:
        """Shared blocks can be found until they are reused, private ones are of no use to anybody."""
        assert self._windowed is not None
        shared = self._windowed.blocks_of(sequence)
        blocks = shared[: left - sequence.left]
        del shared[: len(blocks)]
        self.give_back(self._windowed.groups * (left - sequence.left - len(blocks)))
        sequence.left = left
        for block in reversed(blocks):
            self._let_go(block)

    def register(self, sequence: Sequence, tokens: int, *, windows: bool = True) -> None:
        """Register the sequence's full shared blocks; private ones need no entry while they are held."""
        full = min(tokens, sequence.shared_tokens) // self.keys.block_size
        if not full:
            return
        for layers in self._kinds:
            if layers is self._windowed and not windows:
                continue
            blocks = layers.blocks_of(sequence)
            first = layers.left(sequence) + len(blocks)
            for key in self.keys.chain(sequence.row, full)[first:full]:
                block = Block(key, layers)
                layers.copies.setdefault(key, []).append(block)
                blocks.append(block)

    def release(self, sequence: Sequence, positions: int, tokens: int) -> None:
        """Blocks without a key become blank; the others can be reused, the sequence's last block first."""
        self.register(sequence, tokens)
        full = tokens // self.keys.block_size
        for layers in self._kinds:
            blocks = layers.blocks_of(sequence)
            left = layers.left(sequence)
            first = left + len(blocks)
            blank = layers.groups * (positions - max(full, left))
            self._blank += blank
            self.free += blank
            if full > first:
                run = _Run(layers, sequence.row, first, full)
                self._reusable[run] = None
                layers.runs.setdefault(sequence.row, []).append(run)
                self.free += layers.groups * (full - first)
            for block in reversed(blocks):
                self._let_go(block)
        sequence.blocks = sequence.window_blocks = None

    def cached_keys(self, registered: list[tuple[Sequence, int]]) -> int:
        """Distinct keys: shared ones, and private blocks held or released, copies counted once."""
        layers = self._kinds[0]
        private: set[tuple[int, int]] = set()
        for sequence, tokens in registered:
            self.register(sequence, tokens, windows=False)
            first = layers.left(sequence) + len(layers.blocks_of(sequence))
            private.update((sequence.row, i) for i in range(first, tokens // self.keys.block_size))
        for row, runs in layers.runs.items():
            private.update((row, i) for run in runs for i in range(run.first, run.last))
        return len(layers.copies) + len(private)

    def _share(self, block: Block) -> Block:
        if not block.users:
            del self._reusable[block]
            self.free -= block.layers.groups
        block.users += 1
        return block

    def _let_go(self, block: Block) -> None:
        block.users -= 1
        if not block.users:
            self._reusable[block] = None
            self.free += block.layers.groups

    def _evict(self, count: int) -> None:
        """Forget the least recently released blocks until ``count`` more are taken; what is too many is blank."""
        reusable = self._reusable
        while count > 0:
            oldest = next(iter(reusable))
            groups = oldest.layers.groups
            if isinstance(oldest, _Run):
                gone = min(-(-count // groups), oldest.last - oldest.first)
                oldest.last -= gone
                count -= gone * groups
                if oldest.last == oldest.first:
                    self._drop_run(oldest)
            else:
                del reusable[oldest]
                self._forget(oldest)
                count -= groups
        self._blank -= count

    def _forget(self, block: Block) -> None:
        copies = block.layers.copies[block.key]
        copies.remove(block)
        if not copies:
            del block.layers.copies[block.key]

    def _drop_run(self, run: _Run) -> None:
        del self._reusable[run]
        if run.row == _NOBODY:
            return
        runs = run.layers.runs[run.row]
        runs.remove(run)
        if not runs:
            del run.layers.runs[run.row]

    def _take_private(self, layers: _Layers, row: int, first: int, last: int) -> None:
        """Take the released private blocks ``first .. last - 1`` of a request out of reuse, from its oldest runs.

        A younger run may hold copies of blocks just taken from an older one; they become blank.
        """
        wanted = first
        for run in list(layers.runs[row]):
            if not run.first <= wanted < run.last:
                continue
            self._blank += layers.groups * (wanted - run.first)
            run.first = min(run.last, last)
            self.free -= layers.groups * (run.first - wanted)
            wanted = run.first
            if run.first == run.last:
                self._drop_run(run)
