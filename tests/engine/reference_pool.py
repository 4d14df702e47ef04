"""A block pool as the real engine has it: every block with an id, every key as the tokens it stands for.

The rules are those of vLLM's ``BlockPool``: the free list is a queue of ids; a block is taken from its head and loses
its key; a released block without a key returns to the head, one with a key to the tail, a request's last block first; a
lookup gives the oldest block that has the key.
"""

from collections import deque

Token = tuple[int, int]


class ReferencePool:
    """Blocks ``0 .. blocks - 1`` and what they hold."""

    def __init__(self, blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.free = deque(range(blocks))
        self.users = [0] * blocks
        self.key: list[tuple[Token, ...] | None] = [None] * blocks
        self.holders: dict[tuple[Token, ...], list[int]] = {}
        self.tables: dict[int, list[int]] = {}

    def lookup(self, tokens: list[Token]) -> list[int]:
        """The blocks of the longest prefix that is held, at most all but the last token."""
        found: list[int] = []
        for number in range(1, (len(tokens) - 1) // self.block_size + 1):
            holders = self.holders.get(tuple(tokens[: number * self.block_size]))
            if not holders:
                break
            found.append(holders[0])
        return found

    def admit(self, request: int, hits: list[int], new: int) -> None:
        """Give a request the blocks it hit and new ones."""
        for block in hits:
            if not self.users[block]:
                self.free.remove(block)
            self.users[block] += 1
        self.tables[request] = list(hits)
        self.take(request, new)

    def take(self, request: int, new: int) -> None:
        """Give a request new blocks from the head of the free list."""
        for _ in range(new):
            block = self.free.popleft()
            self._forget(block)
            self.users[block] = 1
            self.tables[request].append(block)

    def register(self, request: int, tokens: list[Token]) -> None:
        """Let a request's blocks that are full be found."""
        for number in range(len(tokens) // self.block_size):
            block = self.tables[request][number]
            if self.key[block] is None:
                key = self.key[block] = tuple(tokens[: (number + 1) * self.block_size])
                self.holders.setdefault(key, []).append(block)

    def release(self, request: int) -> None:
        """Take a request's blocks back."""
        for block in reversed(self.tables.pop(request)):
            self.users[block] -= 1
            if not self.users[block]:
                if self.key[block] is None:
                    self.free.appendleft(block)
                else:
                    self.free.append(block)

    def _forget(self, block: int) -> None:
        key, self.key[block] = self.key[block], None
        if key is not None:
            self.holders[key].remove(block)
            if not self.holders[key]:
                del self.holders[key]
