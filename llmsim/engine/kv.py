"""The KV memory of one engine as the scheduler sees it, and its simplest form: blocks without identity.

Without prefix caching a block is a block, so the pool is one number. ``llmsim.engine.prefix`` is the pool in which
released blocks remember what they hold.
"""

from typing import NamedTuple, Protocol

from llmsim.deployment import Deployment
from llmsim.deployment.groups import most_in_window, positions_left
from llmsim.deployment.memory import fullest_groups
from llmsim.engine.sequence import Sequence


class BlockGroups(NamedTuple):
    """How many KV blocks tokens take: one in every group of layers for each ``size`` tokens, at the same positions.

    Groups whose layers have a sliding window give blocks back that nobody attends to any more.
    """

    size: int
    """Tokens in a block."""
    full: int = 1
    """Groups that keep the whole context."""
    window: int = 0
    """Groups with a sliding window."""
    window_tokens: int = 0
    """Of the window."""
    most_in_window: int = 0
    """Positions that a prompt may take at once in a group with a window."""

    @classmethod
    def of(cls, deployment: Deployment, max_model_len: int, *, reserves_kv: bool) -> "BlockGroups":
        """The groups of layers of a deployment, as whole numbers.

        Who reserves all that a request may ever need does not count on what a window leaves behind.
        """
        groups, size, window_tokens = fullest_groups(deployment), deployment.block_size, deployment.model.sliding_window
        full, window = round(groups.full), round(groups.window)
        if reserves_kv or not window:
            return cls(size, full + window)
        assert window_tokens is not None
        return cls(size, full, window, window_tokens, most_in_window(deployment, max_model_len))

    @property
    def width(self) -> int:
        """Blocks at one position."""
        return self.full + self.window

    def left(self, computed: int) -> int:
        """Positions that a sequence has left behind when the token after ``computed`` ones is next."""
        return positions_left(computed, self.window_tokens, self.size) if self.window else 0

    def of_prompt(self, positions: int) -> int:
        """Blocks that a prompt takes at so many further positions, in the course of its chunks."""
        return self.full * positions + self.window * min(positions, self.most_in_window)

    def kept_until(self, sequence: Sequence) -> int:
        """Context at which a sequence has left all the windowed blocks behind that others may find."""
        return (sequence.left + len(sequence.window_blocks or ())) * self.size + self.window_tokens - 1


class KvCache(Protocol):
    """What the engine asks of KV memory. ``free + held = blocks`` after every call."""

    blocks: int
    """Usable blocks, of all groups (vLLM's null block left out)."""
    free: int

    def lookup(self, sequence: Sequence) -> tuple[int, int]:
        """The longest cached prefix of the sequence, in positions, and how many blocks of it are free now."""
        ...

    def admit(self, sequence: Sequence, hits: int, new_blocks: int) -> None:
        """Give an admitted sequence its ``hits`` (as just looked up) and ``new_blocks``, which must be free."""
        ...

    def take(self, new_blocks: int) -> None:
        """Give ``new_blocks`` to running sequences, whichever they are; they must be free."""
        ...

    def give_back(self, blocks: int) -> None:
        """Take back blocks of windowed layers that decodes have left behind, whichever they are of."""
        ...

    def leave(self, sequence: Sequence, left: int) -> None:
        """Let a sequence leave its first ``left`` positions in windowed layers behind, more than it has so far."""
        ...

    def register(self, sequence: Sequence, tokens: int, *, windows: bool = True) -> None:
        """Let the full blocks among the sequence's first ``tokens`` tokens be found by others.

        Without ``windows`` those of windowed layers are found only when it is released.
        """
        ...

    def release(self, sequence: Sequence, positions: int, tokens: int) -> None:
        """Take back the blocks of a sequence at its first ``positions``, less those it has left behind.

        Those of its first ``tokens`` tokens may be found again.
        """
        ...

    def cached_keys(self, registered: list[tuple[Sequence, int]]) -> int:
        """Distinct prefixes that can be found, given the running sequences and their registered tokens."""
        ...


class BlockPool:
    """KV memory without prefix caching: a number of free blocks."""

    __slots__ = ("_groups", "blocks", "free")

    def __init__(self, blocks: int, groups: BlockGroups) -> None:
        self.blocks = blocks
        self.free = blocks
        self._groups = groups

    def lookup(self, sequence: Sequence) -> tuple[int, int]:
        """Nothing is ever found."""
        return 0, 0

    def admit(self, sequence: Sequence, hits: int, new_blocks: int) -> None:
        """Take the new blocks."""
        self.free -= new_blocks

    def take(self, new_blocks: int) -> None:
        """Take the new blocks."""
        self.free -= new_blocks

    def give_back(self, blocks: int) -> None:
        """Count the blocks as free."""
        self.free += blocks

    def leave(self, sequence: Sequence, left: int) -> None:
        """Count the blocks as free."""
        self.free += (left - sequence.left) * self._groups.window
        sequence.left = left

    def register(self, sequence: Sequence, tokens: int, *, windows: bool = True) -> None:
        """Nothing to remember."""

    def release(self, sequence: Sequence, positions: int, tokens: int) -> None:
        """Count the blocks as free."""
        self.free += positions * self._groups.full + (positions - sequence.left) * self._groups.window

    def cached_keys(self, registered: list[tuple[Sequence, int]]) -> int:
        """Nothing can be found."""
        return 0
