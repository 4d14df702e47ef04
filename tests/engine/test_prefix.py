"""Prefix caching without block ids, against a pool that has them."""

from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import Generator

from llmsim.engine.kv import BlockGroups
from llmsim.engine.prefix import PrefixCache
from llmsim.engine.prompt_keys import PromptKeys
from llmsim.engine.sequence import Sequence
from llmsim.workload import RequestTable
from tests.engine.reference_pool import ReferencePool, Token
from tests.factories import a_sequence, a_table

REQUESTS = 12


@dataclass
class Twin:
    """A request as it stands in the cache and in the reference."""

    sequence: Sequence
    tokens: list[Token]
    """Known ones: the prompt's, and outputs as they come."""
    outputs: int
    computed: int = 0
    running: bool = False
    decoding: bool = False
    ended: bool = False
    authors: list[tuple[int, int]] = field(default_factory=list)
    """Requests whose outputs the prompt names, and how many."""


def draw_table(rng: Generator) -> RequestTable:
    """Prompts that share a beginning, continue another's prompt and answer, or are all their own."""
    pieces: list[list[tuple[int, int, int]]] = []
    outputs = rng.integers(1, 20, REQUESTS)
    for row in range(REQUESTS):
        mine = [(int(rng.integers(2)), 0, int(rng.choice([4, 9, 16])))]
        if row and rng.random() < 0.4:
            before = int(rng.integers(row))
            mine = [*pieces[before], (-1 - before, 0, int(rng.integers(1, outputs[before] + 1)))]
        if rng.random() < 0.7:
            mine.append((2 + row, 0, int(rng.integers(1, 14))))
        if rng.random() < 0.2:
            mine = [(2 + row, 0, int(rng.integers(1, 30)))]
        pieces.append(mine)
    offsets = np.cumsum([0, *(len(mine) for mine in pieces)])
    flat = np.array([piece for mine in pieces for piece in mine], np.int64)
    prompts = [sum(tokens for _, _, tokens in mine) for mine in pieces]
    return a_table(prompt_tokens=prompts, output_tokens=outputs, segments=(offsets, *flat.T))


def twins(table: RequestTable, keys: PromptKeys) -> list[Twin]:
    """All requests, not yet admitted."""
    found = []
    for row in range(len(table)):
        pieces = range(table.segment_offsets[row], table.segment_offsets[row + 1])
        prompt = [(int(table.segment_stream[i]), j) for i in pieces for j in range(table.segment_tokens[i])]
        named = [(-1 - int(table.segment_stream[i]), int(table.segment_tokens[i])) for i in pieces]
        sequence = a_sequence(row, prompt_tokens=len(prompt), shared_tokens=keys.shared_tokens(row))
        authors = [(author, tokens) for author, tokens in named if author >= 0]
        found.append(Twin(sequence, prompt, int(table.output_tokens[row]), authors=authors))
    return found


class Both:
    """The cache and the reference, told the same, compared after everything."""

    def __init__(self, seed: int, block_size: int, blocks: int) -> None:
        rng = np.random.default_rng(seed)
        table = draw_table(rng)
        keys = PromptKeys(table, block_size)
        self.rng = rng
        self.size = block_size
        self.cache = PrefixCache(blocks, keys, BlockGroups(block_size))
        self.reference = ReferencePool(blocks, block_size)
        self.twins = twins(table, keys)

    def step(self) -> None:
        """Something happens to one of the requests."""
        twin = self.twins[self.rng.integers(REQUESTS)]
        if twin.ended:
            return
        if not twin.running:
            self.admit(twin)
        elif self.rng.random() < 0.1:
            self.release(twin)
        elif twin.computed < len(twin.tokens):
            self.compute(twin, int(self.rng.integers(1, len(twin.tokens) - twin.computed + 1)))
        else:
            raise AssertionError("a running request always has a token to compute")
        self.compare()

    def admit(self, twin: Twin) -> None:
        """Look the request up and admit it if it fits; an answer is complete before it is asked about."""
        for author, tokens in twin.authors:
            writer = self.twins[author]
            if not writer.ended and writer.computed < writer.sequence.prompt_tokens + tokens:
                return
            if writer.running:
                self.cache.register(writer.sequence, writer.computed)
        hits = self.reference.lookup(twin.tokens)
        idle = sum(not self.reference.users[block] for block in hits)
        assert self.cache.lookup(twin.sequence) == (len(hits), idle)
        found = len(hits) * self.size
        tokens = int(self.rng.integers(1, len(twin.tokens) - found + 1))
        new = self.blocks(found + tokens) - len(hits)
        if new + idle > self.cache.free:
            return
        self.cache.admit(twin.sequence, len(hits), new)
        self.reference.admit(twin.sequence.row, hits, new)
        twin.running, twin.computed = True, found
        self.computed(twin, tokens)

    def compute(self, twin: Twin, tokens: int) -> None:
        """Compute further tokens of a running request, or preempt it when there is no room."""
        new = self.blocks(twin.computed + tokens) - self.blocks(twin.computed)
        if new > self.cache.free:
            self.release(twin)
            return
        self.cache.take(new)
        self.reference.take(twin.sequence.row, new)
        self.computed(twin, tokens)

    def computed(self, twin: Twin, tokens: int) -> None:
        """Tokens are computed: full blocks are registered, and after the last known token there is one more.

        The cache hears of blocks that decoding fills only when somebody may ask for them.
        """
        twin.computed += tokens
        if not twin.decoding:
            self.cache.register(twin.sequence, twin.computed)
        self.reference.register(twin.sequence.row, twin.tokens[: twin.computed])
        if twin.computed == len(twin.tokens):
            twin.decoding = True
            twin.tokens.append((-1 - twin.sequence.row, twin.sequence.emitted))
            twin.sequence.emitted += 1
            if twin.sequence.emitted == twin.outputs:
                twin.ended = True
                self.release(twin)

    def release(self, twin: Twin) -> None:
        """The request ends or is preempted."""
        self.cache.release(twin.sequence, self.blocks(twin.computed), twin.computed)
        self.reference.release(twin.sequence.row)
        twin.running = twin.decoding = False
        twin.computed = 0

    def compare(self) -> None:
        """Both have as many free blocks."""
        assert self.cache.free == len(self.reference.free)

    def compare_keys(self) -> None:
        """Both can find as many prefixes, and the same of every request that waits."""
        running = [(twin.sequence, twin.computed) for twin in self.twins if twin.running]
        assert self.cache.cached_keys(running) == len(self.reference.holders)
        for twin in self.twins:
            if not twin.running and not twin.ended:
                hits = self.reference.lookup(twin.tokens)
                assert self.cache.lookup(twin.sequence)[0] == len(hits)

    def blocks(self, tokens: int) -> int:
        """Blocks that hold so many tokens."""
        return -(-tokens // self.size)


@settings(max_examples=200, derandomize=True, deadline=None, database=None)
@given(st.integers(0, 1_000_000), st.sampled_from([1, 2, 4]), st.integers(12, 60), st.integers(1, 150), st.booleans())
def test_hits_free_blocks_and_keys_are_those_of_a_pool_with_ids(
    seed: int, block_size: int, blocks: int, steps: int, often: bool
) -> None:
    both = Both(seed, block_size, blocks)
    for _ in range(steps):
        both.step()
        if often:
            both.compare_keys()
    both.compare_keys()


def test_everything_is_free_when_everybody_has_gone() -> None:
    both = Both(seed=3, block_size=4, blocks=200)
    while not all(twin.ended for twin in both.twins):
        both.step()
    assert both.cache.free == both.cache.blocks == 200
