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
from llmsim.results.recorder import Run
from llmsim.units import NS_PER_S

LONGEST = 4096
"""Iterations planned at a time: a longer leap is taken in several."""

SHORTEST = 3
"""Fewer repetitions are cheaper one by one."""

_NUMBERS = np.arange(LONGEST + 1)


def durations_ns(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    """Iteration times as whole nanoseconds, at least 1: the same for arrays as ``duration_ns`` for one.

    The times ascend or descend, as those of a leap do: its context only grows.
    """
    durations = (seconds * NS_PER_S + 0.5).astype(np.int64)
    return durations if durations[0] and durations[-1] else np.maximum(durations, 1)


def duration_ns(seconds: float) -> int:
    """An iteration's time as whole nanoseconds, at least 1."""
    return max(int(seconds * NS_PER_S + 0.5), 1)


def repetitions(state: EngineState, plan: Plan) -> int:
    """How many more iterations will be planned exactly as ``plan`` was, whatever arrives at the end of the queue.

    ``plan`` has been closed and has not started; those in flight before it matter too, as they may end something.
    """
    clock = state.clock
    if (
        len(state.lanes) > 1
        or plan.prefills
        or not plan.decodes
        or plan.decodes != clock.count
        or not (plan.quiet and plan.repeats)
    ):
        return 0
    for flight in state.flights:
        if not flight.quiet:
            return 0
    if plan.stopped_by == "kv" and any(row in state.named for row in state.waiting.head().names):
        return 0
    iterations = min(clock.next_leaving() - plan.iteration, LONGEST)
    if state.window is not None and (crossing := clock.next_crossing()) is not None:
        iterations = min(iterations, crossing - 1 - plan.iteration)
    return clock.iterations_within(state.kv.free, iterations) if iterations > 0 else 0


@dataclass(slots=True)
class Leap:
    """``plan`` and iterations that repeat it, not yet carried out."""

    plan: Plan
    """The last iteration in flight."""
    ends_ns: NDArray[np.int64]
    """Ends of the iterations in flight, then of those leaped over: number k (from 0) of the latter is planned at
    ``ends_ns[k]``, so that the leap is over at ``ends_ns[iterations]``."""
    durations_ns: NDArray[np.int64]
    """Of ``plan`` and of those leaped over."""
    iterations: int
    """How many iterations it leaps over; fewer than there are ends when it has been cut."""
    growing: int
    """Decodes whose windowed context grows from one iteration to the next."""
    arrived_before: list[int] = field(default_factory=list)
    """For each request that joined the queue meanwhile, how many of the iterations were planned before."""

    @classmethod
    def over(cls, state: EngineState, plan: Plan, iterations: int, cost: CostModel) -> "Leap":
        """The leap over ``iterations`` iterations after ``plan``, which is about to start; sets its end."""
        sequences = plan.batch.decode_sequences
        growing = sequences if state.window is None else state.clock.growing()
        number = _NUMBERS[: iterations + 1]
        context = window = number * sequences + plan.batch.decode_context_tokens
        if state.window is not None:
            window = number * growing + plan.batch.decode_window_tokens
        durations = durations_ns(cost.decode(sequences, context, window))
        ends = durations.cumsum()
        ends += plan.start_ns
        plan.end_ns = int(ends[0])
        if state.flights:
            ends = np.concatenate([[flight.end_ns for flight in state.flights], ends])
        return cls(plan, ends, durations, iterations, growing)

    @property
    def over_ns(self) -> int:
        """When the next plan is made."""
        return int(self.ends_ns[self.iterations])

    def cut(self, now_ns: int) -> None:
        """End the leap at the first plan that is made at ``now_ns`` or later."""
        self.iterations = min(self.iterations, self.planned_before(now_ns))

    def planned_before(self, now_ns: int) -> int:
        """Iterations of the leap that are planned before ``now_ns``."""
        return int(self.ends_ns.searchsorted(now_ns))

    @property
    def last_end_ns(self) -> int:
        """End of its last iteration."""
        return self.end_ns(self.iterations + 1)

    def end_ns(self, number: int) -> int:
        """End of the iteration ``number``, counted from 1 for ``plan``."""
        return int(self.ends_ns[number - 1 - len(self.durations_ns)])

    def longest_ns(self, iterations: int) -> int:
        """The longest of the first ``iterations`` iterations: their times ascend or descend."""
        durations = self.durations_ns
        return max(int(durations[0]), int(durations[iterations - 1]))

    def run(self, state: EngineState) -> Run:
        """How the iterations differ from ``plan``, to be kept. Before they are carried out."""
        ends = self.ends_ns[len(self.ends_ns) - len(self.durations_ns) :]
        return Run(ends, state.clock.residues.copy(), self.growing, self.arrived_before)

    def carry_out(self, state: EngineState) -> list[Sequence]:
        """Tell the engine that the iterations have been planned; returns who leaves the plan after the last."""
        if not self.iterations:
            return []
        state.kv.take(state.clock.blocks_over(self.iterations))
        return state.clock.leap(self.iterations)

    def later(self, first: int, state: EngineState) -> list[Plan]:
        """Iterations ``first`` (1: the one after ``plan``) to the last as plans of their own, once carried out."""
        return [self._repetition(number, state) for number in range(first, self.iterations + 1)]

    def _repetition(self, number: int, state: EngineState) -> Plan:
        plan, batch = self.plan, self.plan.batch
        end = self.end_ns(number + 1)
        batch = batch._replace(
            decode_context_tokens=batch.decode_context_tokens + batch.decode_sequences * number,
            decode_window_tokens=batch.decode_window_tokens + self.growing * number,
        )
        repetition = Plan(plan.clock, plan.number + number)
        repetition.iteration = plan.iteration + number
        repetition.stopped_by = plan.stopped_by
        repetition.decodes = plan.decodes
        repetition.batch = batch
        repetition.running = plan.running
        repetition.waiting = plan.waiting + sum(planned < number for planned in self.arrived_before)
        repetition.kv_blocks = state.kv.blocks - state.kv.free
        repetition.start_ns = end - int(self.durations_ns[number])
        repetition.end_ns = end
        return repetition
