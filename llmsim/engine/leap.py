"""The decode leap: iterations in which nothing is decided, planned in one go.

While no prompt is computed, nobody can be admitted, nobody ends and there are KV blocks for all, a scheduler says the
same in every iteration: one token for every decode. ``Leap`` holds the ends of such iterations, which are the very
numbers that stepping gives, since the vectorised cost model agrees with the scalar one to the last bit. It is carried
out (``EngineState`` hears of it) when it ends, or when an arrival cuts it at the first plan that could know of it.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from llmsim.cost.base import CostModel
from llmsim.engine.plan import Plan
from llmsim.engine.sequence import Sequence
from llmsim.engine.state import EngineState
from llmsim.units import NS_PER_S

_LONGEST = 4096
"""Iterations planned at a time: a longer leap is taken in several."""

_SHORTEST = 3
"""Fewer iterations are cheaper one by one."""


@dataclass(slots=True)
class Leap:
    """Iterations after ``plan`` that repeat it, not yet carried out. Arrays have one entry for each of them."""

    plan: Plan
    """The last iteration in flight."""
    ends_ns: NDArray[np.int64]
    """Ends of the iterations in flight, then of those leaped over: number k (from 0) of the latter is planned at
    ``ends_ns[k]``, so that the leap is over at ``ends_ns[iterations]``."""
    context_tokens: NDArray[np.int64]
    window_tokens: NDArray[np.int64]
    iterations: int
    """How many iterations the leap has; fewer than the arrays when it has been cut."""
    arrived_before: list[int] = field(default_factory=list)
    """For each request that joined the queue meanwhile, how many of the iterations were planned before."""

    @property
    def over_ns(self) -> int:
        """When the next plan is made."""
        return int(self.ends_ns[self.iterations])

    def cut(self, now_ns: int) -> None:
        """End the leap at the first plan that is made at ``now_ns`` or later."""
        self.iterations = min(self.iterations, self.planned_before(now_ns))

    def planned_before(self, now_ns: int) -> int:
        """Iterations of the leap that are planned before ``now_ns``."""
        return int(np.searchsorted(self.ends_ns, now_ns, side="left"))

    def carry_out(self, state: EngineState) -> list[Sequence]:
        """Tell the engine that the iterations have been planned; returns who leaves the plan after the last."""
        iterations = self.iterations
        if not iterations:
            return []
        state.kv.take(state.clock.blocks_over(iterations))
        return state.clock.leap(iterations)

    def columns(self, block_size: int, residues: list[int]) -> dict[str, NDArray[np.int64]]:
        """What differs between the iterations, by field of an iteration's row.

        ``residues`` are the iteration clock's while the leap lasts.
        """
        k = self.iterations
        before = len(self.ends_ns) - len(self.context_tokens)
        first = self.plan.iteration + 1
        number = np.arange(first, first + k)
        due = np.array(residues)[-number % block_size]
        waiting = np.full(k, self.plan.waiting)
        for planned in self.arrived_before:
            waiting[planned:] += 1
        return {
            "iteration": number,
            "start_ns": self.ends_ns[before - 1 : before - 1 + k],
            "end_ns": self.ends_ns[before : before + k],
            "decode_context_tokens": self.context_tokens[:k],
            "decode_window_tokens": self.window_tokens[:k],
            "waiting": waiting,
            "kv_blocks": self.plan.kv_blocks + np.cumsum(due),
        }


def propose(state: EngineState, cost: CostModel) -> Leap | None:
    """The leap that can follow the iterations in flight; None when the next plan may differ from the last."""
    iterations = _repeats(state)
    if iterations < _SHORTEST:
        return None
    flights, plan = state.flights, state.flights[-1]
    number = np.arange(1, iterations + 1)
    context = window_context = plan.batch.decode_context_tokens + plan.decodes * number
    if state.window is not None:
        window_context = plan.batch.decode_window_tokens + state.clock.growing() * number
    durations = np.rint(cost.decode(plan.decodes, context, window_context) * NS_PER_S)
    ends = np.empty(len(flights) + iterations, np.int64)
    ends[: len(flights)] = [flight.end_ns for flight in flights]
    later = ends[len(flights) :]
    np.cumsum(np.maximum(durations, 1).astype(np.int64), out=later)
    later += plan.end_ns
    return Leap(plan, ends, context, window_context, iterations)


def _repeats(state: EngineState) -> int:
    """How many more iterations will be planned as the last one was, whatever arrives."""
    clock = state.clock
    plan = state.flights[-1]
    if plan.prefills or plan.decodes != clock.count or not plan.decodes:
        return 0
    if not all(flight.quiet for flight in state.flights):
        return 0
    if plan.stopped_by == "kv" and any(row in state.named for row in state.waiting.head().names):
        return 0
    iterations = min(clock.next_leaving() - plan.iteration, _LONGEST)
    if (crossing := clock.next_crossing()) is not None:
        iterations = min(iterations, crossing - 1 - plan.iteration)
    return clock.iterations_within(state.kv.free, iterations) if iterations > 0 else 0
