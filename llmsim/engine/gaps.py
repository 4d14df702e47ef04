"""The longest gap between two tokens over any stretch of iterations that ends now, without a token's time stored."""

from bisect import bisect_left


class GapHistory:
    """Gaps between the ends of consecutive iterations, as the stack of those that no later one exceeds.

    Pushing costs O(1) amortised, asking O(log n): the standard stack for suffix maxima.
    """

    __slots__ = ("_gaps", "_iterations")

    def __init__(self) -> None:
        self._iterations: list[int] = []
        self._gaps: list[int] = []

    def push(self, iteration: int, gap: int) -> None:
        """Note the gap before the end of ``iteration`` (or the longest of a leap that ends with it)."""
        gaps, iterations = self._gaps, self._iterations
        while gaps and gaps[-1] <= gap:
            gaps.pop()
            iterations.pop()
        gaps.append(gap)
        iterations.append(iteration)

    def longest_since(self, iteration: int) -> int:
        """The longest gap of all iterations from ``iteration`` on; -1 if there is none."""
        index = bisect_left(self._iterations, iteration)
        return self._gaps[index] if index < len(self._gaps) else -1
