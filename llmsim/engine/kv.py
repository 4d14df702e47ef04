"""The KV memory of one engine as the scheduler sees it, and its simplest form: blocks without identity.

Without prefix caching a block is a block, so the pool is one number. ``llmsim.engine.prefix`` is the pool in which
released blocks remember what they hold.
"""

from typing import Protocol

from llmsim.engine.sequence import Sequence


class KvCache(Protocol):
    """What the engine asks of KV memory. ``free + held = blocks`` after every call."""

    blocks: int
    """Usable blocks (vLLM's null block left out)."""
    free: int

    def lookup(self, sequence: Sequence) -> tuple[int, int]:
        """The longest cached prefix of the sequence, in blocks, and how many of those blocks are free now."""
        ...

    def admit(self, sequence: Sequence, hits: int, new_blocks: int) -> None:
        """Give an admitted sequence its ``hits`` (as just looked up) and ``new_blocks``, which must be free."""
        ...

    def take(self, new_blocks: int) -> None:
        """Give ``new_blocks`` to running sequences, whichever they are; they must be free."""
        ...

    def register(self, sequence: Sequence, tokens: int) -> None:
        """Let the full blocks among the sequence's first ``tokens`` tokens be found by others."""
        ...

    def release(self, sequence: Sequence, held: int, tokens: int) -> None:
        """Take back the ``held`` blocks of a sequence, whose first ``tokens`` tokens may be found again."""
        ...

    def cached_keys(self, registered: list[tuple[Sequence, int]]) -> int:
        """Distinct prefixes that can be found, given the running sequences and their registered tokens."""
        ...


class BlockPool:
    """KV memory without prefix caching: a number of free blocks."""

    __slots__ = ("blocks", "free")

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.free = blocks

    def lookup(self, sequence: Sequence) -> tuple[int, int]:
        """Nothing is ever found."""
        return 0, 0

    def admit(self, sequence: Sequence, hits: int, new_blocks: int) -> None:
        """Take the new blocks."""
        self.free -= new_blocks

    def take(self, new_blocks: int) -> None:
        """Take the new blocks."""
        self.free -= new_blocks

    def register(self, sequence: Sequence, tokens: int) -> None:
        """Nothing to remember."""

    def release(self, sequence: Sequence, held: int, tokens: int) -> None:
        """Count the blocks as free."""
        self.free += held

    def cached_keys(self, registered: list[tuple[Sequence, int]]) -> int:
        """Nothing can be found."""
        return 0
