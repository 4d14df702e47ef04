"""How long iterations take, in ticks, and how long any number of decodes take together.

A cost model says how long one iteration takes. Where prompts are computed it is asked each time. Iterations of decodes
alone repeat one another with every context a token longer, and their times lie on planes over the context: through the
cost model's times at the corners of a cell, cells being cut until the plane keeps to ``TOLERANCE`` of it. On a plane
the time of any number of iterations is a few integer products, the very sum that one after another would give.

A plane through the corners of a cell lies above a convex function, as a roofline is of its context: no time is shorter
than the chip allows.
"""

from typing import NamedTuple

from llmsim.cost.base import Batch, CostModel
from llmsim.units import NS_PER_S, TICK_BITS

TICKS_PER_NS = 1 << TICK_BITS

TOLERANCE = 5e-4
"""How far a plane may be from the cost model at three points within a cell, as a share of the iteration's time."""

_TICKS_PER_S = NS_PER_S * TICKS_PER_NS

Range = tuple[int, int]
"""Tokens from the first to before the second."""

EVERYWHERE: Range = (0, 1 << 62)
"""Of windowed contexts, where there are none apart."""


class Plane(NamedTuple):
    """Ticks of an iteration of decodes as a plane over what they attend to."""

    ticks: int
    per_context_token: int
    per_window_token: int

    def at(self, context: int, window: int) -> int:
        """Ticks of an iteration whose decodes attend to so many tokens."""
        return self.ticks + self.per_context_token * context + self.per_window_token * window

    def longer(self, sequences: int, growing: int) -> int:
        """By how much an iteration of so many decodes takes longer than the one before it.

        The windowed contexts of ``growing`` of them grow too.
        """
        return self.per_context_token * sequences + self.per_window_token * growing


class Cell(NamedTuple):
    """The times of iterations of a number of decodes over a range of contexts, ``to`` excluded."""

    context_from: int
    context_to: int
    window_from: int
    window_to: int
    occupancy: Plane
    latency: Plane


class Pace:
    """The times of one engine's iterations."""

    __slots__ = ("_cells", "_cost", "_last", "_windowed")

    def __init__(self, cost: CostModel, *, windowed: bool = False) -> None:
        self._cost = cost
        self._windowed = windowed
        """Whether some layers attend to a sliding window only: else the window is as long as the context."""
        self._cells: dict[tuple[int, Range, Range], Cell | None] = {}
        """By sequences, contexts and windowed contexts; None: cut into smaller ones."""
        self._last: dict[int, Cell] = {}
        """By sequences: the cell of the last question."""

    def step(self, batch: Batch) -> tuple[int, int]:
        """Ticks until the next batch may start on the first stage, and until the tokens of this one are out.

        Whole ones, and at least a nanosecond.
        """
        occupancy_s, latency_s = self._cost.step(batch)
        occupancy = max(int(occupancy_s * _TICKS_PER_S + 0.5), TICKS_PER_NS)
        if latency_s == occupancy_s:
            return occupancy, occupancy
        return occupancy, max(int(latency_s * _TICKS_PER_S + 0.5), TICKS_PER_NS)

    def decodes(self, sequences: int, context: int, window: int) -> Cell:
        """The cell of iterations in which ``sequences`` decode a token each and attend to ``context`` tokens
        altogether, in layers with a sliding window to ``window``."""
        cell = self._last.get(sequences)
        if (
            cell is None
            or not cell.context_from <= context < cell.context_to
            or not cell.window_from <= window < cell.window_to
        ):
            cell = self._last[sequences] = self._find(sequences, context, window)
        return cell

    def _find(self, sequences: int, context: int, window: int) -> Cell:
        """Cells as wide as they are far from 0 are halved until one is flat."""
        along = _octave(context)
        across = _octave(window) if self._windowed else EVERYWHERE
        while True:
            key = sequences, along, across
            if key not in self._cells:
                self._cells[key] = self._flat(*key)
            if (cell := self._cells[key]) is not None:
                return cell
            along = _half(along, context)
            across = _half(across, window) if self._windowed else EVERYWHERE

    def _flat(self, sequences: int, along: Range, across: Range) -> Cell | None:
        """The cell over a range of contexts and one of windowed contexts; None if its planes are too far from the cost
        model within."""

        def at(context: int, window: int) -> tuple[int, int]:
            kept = window if self._windowed else context
            return self.step(Batch(0, 0, 0, 0, sequences, context, sequences, 0, 0, kept))

        corners = [at(context, window) for window in across for context in along]
        occupancy, latency = (_through(along, across, *ticks) for ticks in zip(*corners, strict=True))
        if max(along[1] - along[0], across[1] - across[0] if self._windowed else 0) > 1:
            for quarters in (1, 2, 3):
                point = tuple(first + (last - first) * quarters // 4 for first, last in (along, across))
                for plane, ticks in zip((occupancy, latency), at(*point), strict=True):
                    if abs(plane.at(*point) - ticks) > TOLERANCE * ticks:
                        return None
        return Cell(*along, *across, occupancy, occupancy if latency == occupancy else latency)


def end_of(begin: int, occupancy: int, latency: int, end_before: int) -> int:
    """When an iteration ends that begins while the one before it, which ends at ``end_before``, is in flight.

    On the last stage too it follows the one before it, however short it is. That makes completion times those of a
    flow shop, exactly so for stages that take the same time. Source: Pinedo, "Scheduling", chapter 6.
    """
    end, after = begin + latency, end_before + occupancy
    return end if end > after else after


def _octave(tokens: int) -> Range:
    first = 1 << tokens.bit_length() - 1
    return first, 2 * first


def _half(whole: Range, tokens: int) -> Range:
    """The half of a range that the tokens are in; one that is a token wide stays whole."""
    middle = (whole[0] + whole[1] + 1) // 2
    return (whole[0], middle) if tokens < middle else (middle, whole[1])


def _through(along: Range, across: Range, near: int, far: int, near_too: int, far_too: int) -> Plane:
    """The plane through the first three corners of a cell, or parallel to it above the fourth.

    Corners of the first windowed context stand first. Slopes are rounded up.
    """
    (context, context_to), (window, window_to) = along, across
    per_context = -((near - far) // (context_to - context))
    per_window = -((near - near_too) // (window_to - window))
    plane = Plane(near - per_context * context - per_window * window, per_context, per_window)
    missing = far_too - plane.at(context_to, window_to)
    return plane._replace(ticks=plane.ticks + missing) if missing > 0 else plane
