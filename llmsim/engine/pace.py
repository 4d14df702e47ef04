"""How long iterations take, in ticks, and how long any number of decodes take together.

A cost model says how long one iteration takes. Where prompts are computed that is asked each time. Iterations of decodes
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
"""How far a plane may be from the cost model in the middle of a cell, as a share of the iteration's time."""

_TICKS_PER_S = NS_PER_S * TICKS_PER_NS


class Plane(NamedTuple):
    """Ticks of an iteration of decodes as a plane over what they attend to."""

    ticks: int
    per_context_token: int
    per_window_token: int

    def at(self, context: int, window: int) -> int:
        """Ticks of an iteration whose decodes attend to so many tokens."""
        return self.ticks + self.per_context_token * context + self.per_window_token * window


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
        self._cells: dict[tuple[int, int, int, int, int], Cell | None] = {}
        """By sequences, corner and size; None: cut into smaller ones."""
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
        width = corner = 1 << context.bit_length() - 1
        depth = low = 1 << window.bit_length() - 1
        while True:
            key = (sequences, corner, width, low, depth) if self._windowed else (sequences, corner, width, 0, 0)
            if key not in self._cells:
                self._cells[key] = self._plane(*key)
            if (cell := self._cells[key]) is not None:
                return cell
            width, depth = max(width // 2, 1), max(depth // 2, 1)
            corner += width if context >= corner + width else 0
            low += depth if window >= low + depth else 0

    def _plane(self, sequences: int, corner: int, width: int, low: int, depth: int) -> Cell | None:
        """The cell with planes through its corners; None if they are too far from the cost model in its middle."""

        def at(context: int, window: int) -> tuple[int, int]:
            kept = window if self._windowed else context
            return self.step(Batch(0, 0, 0, 0, sequences, context, sequences, 0, 0, kept))

        near = at(corner, low)
        along = at(corner + width, low)
        across, far = (at(corner, low + depth), at(corner + width, low + depth)) if depth else (near, along)
        planes = [
            _through(corner, width, low, depth, *ticks) for ticks in zip(near, along, across, far, strict=True)
        ]
        context, window = corner + width // 2, low + depth // 2
        for plane, ticks in zip(planes, at(context, window), strict=True):
            if max(width, depth) > 1 and abs(plane.at(context, window) - ticks) > TOLERANCE * ticks:
                return None
        occupancy, latency = planes
        window_from, window_to = (low, low + depth) if depth else (corner, corner + width)
        return Cell(corner, corner + width, window_from, window_to, occupancy, occupancy if occupancy == latency else latency)


def _through(corner: int, width: int, low: int, depth: int, near: int, along: int, across: int, far: int) -> Plane:
    """The plane through three corners of a cell, or parallel to it above the fourth. Slopes are rounded up."""
    per_context = -((near - along) // width)
    per_window = -((near - across) // depth) if depth else 0
    ticks = near - per_context * corner - per_window * low
    plane = Plane(ticks, per_context, per_window)
    short = far - plane.at(corner + width, low + depth)
    return plane._replace(ticks=ticks + short) if short > 0 else plane
