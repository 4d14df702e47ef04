"""The decode leap: iterations in which nothing is decided, planned in one go.

While no prompt is computed, nobody can be admitted, nobody ends and there are KV blocks for all, a scheduler says the
same in every iteration: one token for every decode. The times of such iterations grow evenly (``llmsim.engine.pace``),
so that a leap knows each of their ends without having computed it: the very numbers that stepping gives. It is carried
out (``EngineState`` hears of it) when it ends, or when an arrival cuts it at the first plan that could know of it.
"""

from bisect import bisect_left

from llmsim.engine.clock import MANY
from llmsim.engine.pace import Cell
from llmsim.engine.plan import Plan
from llmsim.engine.state import EngineState
from llmsim.units import TICK_BITS

SHORTEST = 2
"""Fewer repetitions are cheaper one by one."""


def repetitions(state: EngineState, plan: Plan, cell: Cell) -> int:
    """How many more iterations will be planned exactly as ``plan`` was, whatever arrives at the end of the queue.

    ``plan`` has been closed and has not started; those in flight before it matter too, as they may end something. Its
    time is in ``cell``, which is left after the last of them at the latest.
    """
    if plan.decodes != plan.clock.count or not (plan.quiet and plan.repeats) or cell.latency is not cell.occupancy:
        return 0
    for flight in state.flights:
        if not flight.quiet:
            return 0
    if state.waiting and may_be_found(state, plan):
        return 0
    iterations = undisturbed(state, plan, cell)
    if iterations <= 0:
        return 0
    awaited = plan.awaited_blocks if plan.stopped_by == "kv" and state.groups.window else MANY
    return plan.clock.iterations_within(state.kv.free, iterations, awaited)


def may_be_found(state: EngineState, plan: Plan) -> bool:
    """Whether the next to be admitted was not, although its prompt names outputs that are being generated."""
    return plan.stopped_by in ("kv", "budget") and any(row in state.named for row in state.waiting.head().names)


def undisturbed(state: EngineState, plan: Plan, cell: Cell) -> int:
    """After how many more iterations of its decodes one of them ends, or their times are no more those of ``cell``,
    or a context reaches the window; KV blocks left aside."""
    clock, batch = plan.clock, plan.batch
    iterations: int = min(
        clock.next_leaving() - plan.iteration,
        (cell.context_to - 1 - batch.decode_context_tokens) // batch.decode_sequences,
    )
    if state.window is not None:
        if growing := clock.growing():
            iterations = min(iterations, (cell.window_to - 1 - batch.decode_window_tokens) // growing)
        if (crossing := clock.next_crossing()) is not None:
            iterations = min(iterations, crossing - 1 - plan.iteration)
    return iterations


def windows_growing(state: EngineState, plan: Plan) -> int:
    """Decodes of a plan, padding included, whose windowed context grows from one iteration to the next."""
    sequences: int = plan.batch.decode_sequences
    return sequences if state.window is None else plan.clock.growing()


def repeated(plan: Plan, iterations: int, growing: int) -> Plan:
    """The plan as it is ``iterations`` later on its clock, with every context a token longer each time.

    ``growing`` of its windowed contexts grow too. Whatever else there is at that time remains to be filled in.
    """
    batch = plan.batch
    repetition = Plan(plan.clock, plan.number)
    repetition.iteration = plan.iteration + iterations
    repetition.stopped_by, repetition.until_ns = plan.stopped_by, plan.until_ns
    repetition.decodes = plan.decodes
    repetition.batch = batch._replace(
        decode_context_tokens=batch.decode_context_tokens + batch.decode_sequences * iterations,
        decode_window_tokens=batch.decode_window_tokens + growing * iterations,
    )
    repetition.running = plan.running
    return repetition


class Leap:
    """``plan`` and iterations that repeat it, not yet carried out."""

    __slots__ = (
        "_before",
        "arrived_before",
        "growing",
        "iterations",
        "last_end_ticks",
        "longer_ticks",
        "over_ns",
        "plan",
        "ticks",
    )

    def __init__(self, state: EngineState, plan: Plan, iterations: int, cell: Cell) -> None:
        self.plan = plan
        """The last iteration in flight."""
        self.growing = windows_growing(state, plan)
        """Decodes whose windowed context grows from one iteration to the next."""
        self.ticks = plan.end_ticks - plan.start_ticks
        """Of ``plan``."""
        self.longer_ticks = cell.latency.longer(plan.batch.decode_sequences, self.growing)
        """By how much each takes longer than the one before it."""
        self._before = [flight.end_ns for flight in state.flights if flight is not plan]
        """Ends of the iterations in flight before ``plan``."""
        self.arrived_before: list[int] = []
        """For each request that joined the queue meanwhile, how many of the iterations were planned before."""
        self.end_after(iterations)
        if plan.until_ns is not None:
            self.end_after(min(iterations, self.planned_before(plan.until_ns + 1)))

    def end_after(self, iterations: int) -> None:
        """Let so many iterations be leaped over."""
        self.iterations = iterations
        """How many iterations it leaps over."""
        self.last_end_ticks = self.end_ticks(iterations + 1)
        """End of the last of them."""
        # Number k (from 0) of the leap's is planned when k + 1 of those in flight and those leaped over have ended.
        before = self._before
        if not before:
            self.over_ns = self.last_end_ticks >> TICK_BITS
            """When the next plan is made."""
        elif iterations < len(before):
            self.over_ns = before[iterations]
        else:
            self.over_ns = self.end_ns(iterations + 1 - len(before))

    def planned_before(self, now_ns: int) -> int:
        """Iterations of the leap that are planned before ``now_ns``."""
        planned = bisect_left(range(1, self.iterations + 2), now_ns, key=self.end_ns)
        for end_ns in self._before:
            planned += end_ns < now_ns
        return planned

    def end_ticks(self, number: int) -> int:
        """End of the iteration ``number``, counted from 1 for ``plan``."""
        return self.plan.start_ticks + number * self.ticks + self.longer_ticks * (number * (number - 1) // 2)

    def end_ns(self, number: int) -> int:
        """The same in nanoseconds."""
        longer_ticks = self.longer_ticks * (number * (number - 1) // 2)
        return (self.plan.start_ticks + number * self.ticks + longer_ticks) >> TICK_BITS

    def longest_ticks(self, iterations: int) -> int:
        """The longest of the first ``iterations`` iterations: their times ascend or descend."""
        return self.ticks + max(self.longer_ticks, 0) * (iterations - 1)

    def later(self, first: int, kv_blocks: int) -> list[Plan]:
        """Iterations ``first`` (1: the one after ``plan``) to the last as plans of their own, once carried out.

        In the last one ``kv_blocks`` are held.
        """
        return [self._repetition(number, kv_blocks) for number in range(first, self.iterations + 1)]

    def _repetition(self, number: int, kv_blocks: int) -> Plan:
        plan = self.plan
        repetition = repeated(plan, number, self.growing)
        repetition.number = plan.number + number
        repetition.waiting = plan.waiting + sum(planned < number for planned in self.arrived_before)
        repetition.kv_blocks = kv_blocks
        repetition.takes_place(self.end_ticks(number), self.end_ticks(number + 1))
        return repetition
