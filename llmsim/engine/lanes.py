"""Decode leaps with pipeline stages: iterations of several micro batches, each with a clock of its own, in turn.

With one micro batch on its way through the stages a leap is the one of ``llmsim.engine.leap``: the next iteration
starts when the tokens of the last are out. With several of them an iteration waits for the first stage, for its micro
batch's last tokens, and on the last stage for the iteration before it, so that no closed form says when it ends. The
leap then computes one end after another, by the recurrence that stepping uses (``llmsim.engine.pace.end_of``).
``llmsim.engine.replica`` asks for a leap whenever it has planned, and carries it out.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import cycle, islice, pairwise
from typing import NamedTuple

from llmsim.engine.clock import IterationClock
from llmsim.engine.leap import SHORTEST, Leap, may_be_found, repeated, undisturbed, windows_growing
from llmsim.engine.pace import TICKS_PER_NS, Pace, Plane, end_of
from llmsim.engine.plan import STOPPED_BY, Plan, StoppedBy
from llmsim.engine.state import EngineState
from llmsim.results.recorder import ONE
from llmsim.units import TICK_BITS

LONGEST = 200
"""Most iterations of a leap in turns: their ends are computed one by one, and in vain when an arrival cuts it."""


class Turn(NamedTuple):
    """A micro batch's place in the order in which iterations follow one another."""

    plan: Plan
    """Its iteration in flight."""
    iterations: int
    """After how many more something happens to it, KV blocks left aside."""
    growing: int
    """Decodes whose windowed context grows from one iteration to the next."""
    stopped_by: StoppedBy
    occupancy: Plane
    latency: Plane

    def first_and_longer(self, plane: Plane) -> tuple[int, int]:
        """Ticks of the iteration after ``plan`` by a plane, and by how much each takes longer than the one before."""
        batch = self.plan.batch
        longer = plane.longer(batch.decode_sequences, self.growing)
        return plane.at(batch.decode_context_tokens, batch.decode_window_tokens) + longer, longer


def leap_of_lanes(state: EngineState, pace: Pace, free_ticks: int, uneventful: int) -> "Leap | TurnLeap | None":
    """A leap that begins with the iterations in flight, if there is one that is worth it.

    ``uneventful`` plans have been made since anything happened but a token for each decode: those of which a decision
    on requests that wait can be taken to be repeated. No further iteration begins before ``free_ticks``.
    """
    flights = state.flights
    if sum([lane.count for lane in state.lanes]) != sum([flight.decodes for flight in flights]):
        return None
    for flight in flights:
        if not _is_of_decodes(flight) or (state.waiting and _may_be_admitted(state, flight)):
            return None
    if len(flights) == 1:
        # Requests may have joined the queue since it was planned, while one was in flight whose own have given up.
        as_now = uneventful and flights[0].waiting == len(state.waiting)
        return _leap_alone(state, pace, flights[0]) if as_now else None
    if uneventful < len(flights) and (state.waiting or state.partial):
        return None
    turns = [_turn(state, pace, flight) for flight in flights]
    # A batch's first iteration that something happens to is not leaped over: so many are planned before it.
    iterations = min(LONGEST, *(len(turns) * turn.iterations + place for place, turn in enumerate(turns)))
    if _blocks_over(turns, iterations) > state.kv.free:
        found = bisect_right(range(iterations), state.kv.free, key=lambda most: _blocks_over(turns, most))
        iterations = found - 1
    return TurnLeap(state, turns, iterations, free_ticks) if iterations >= SHORTEST * len(turns) else None


def _may_be_admitted(state: EngineState, plan: Plan) -> bool:
    """Whether who waits may be admitted without anything happening: what it lacks may come."""
    comes_back = state.groups.window and plan.stopped_by in ("kv", "budget")
    return bool(comes_back) or may_be_found(state, plan)


def _is_of_decodes(plan: Plan) -> bool:
    """Whether nothing comes of a plan but a token for each of its decodes."""
    return plan.repeats and plan.quiet and not plan.prefills and plan.decodes > 0


def _leap_alone(state: EngineState, pace: Pace, plan: Plan) -> Leap | None:
    """A leap of the only micro batch there is."""
    batch = plan.batch
    context, window = batch.decode_context_tokens, batch.decode_window_tokens
    cell = pace.decodes(batch.decode_sequences, context, window)
    iterations = undisturbed(state, plan, cell)
    if iterations > 0:
        iterations = plan.clock.iterations_within(state.kv.free, iterations)
    if iterations < SHORTEST or plan.end_ticks - plan.start_ticks != cell.latency.at(context, window):
        return None
    leap = Leap(state, plan, iterations, cell)
    last = context + batch.decode_sequences * iterations, window + leap.growing * iterations
    late = all(cell.latency.at(*at) >= cell.occupancy.at(*at) for at in ((context, window), last))
    return leap if late else None


def _turn(state: EngineState, pace: Pace, plan: Plan) -> Turn:
    batch = plan.batch
    stopped_by = plan.stopped_by if state.waiting else "empty"
    cell = pace.decodes(batch.decode_sequences, batch.decode_context_tokens, batch.decode_window_tokens)
    iterations, growing = undisturbed(state, plan, cell), windows_growing(state, plan)
    return Turn(plan, iterations, growing, stopped_by, cell.occupancy, cell.latency)


def _shares(turns: list[Turn], iterations: int) -> list[tuple[IterationClock, int]]:
    """How many of so many iterations, one micro batch after the other, are on each clock."""
    count = len(turns)
    return [(turn.plan.clock, (iterations - i - 1) // count + 1) for i, turn in enumerate(turns)]


def _blocks_over(turns: list[Turn], iterations: int) -> int:
    """KV blocks that so many iterations need."""
    return sum([clock.blocks_over(own) for clock, own in _shares(turns, iterations)])


def _blocks_left(turns: list[Turn], iterations: int) -> int:
    """Blocks of windowed layers that they leave behind."""
    return sum([clock.left_over(own) for clock, own in _shares(turns, iterations)])


class TurnLeap:
    """Iterations of several micro batches in turn, planned like those in flight and not yet carried out.

    Counted from 0 over those in flight and those leaped over, number ``n`` is planned when ``n`` less the number of
    micro batches ends, which is its own batch's last.
    """

    __slots__ = (
        "_begins",
        "_ends",
        "_first_number",
        "_free_ticks",
        "_held_blocks",
        "_running",
        "_turns",
        "_waiting",
        "arrived_before",
        "iterations",
        "over_ns",
    )

    def __init__(self, state: EngineState, turns: list[Turn], iterations: int, free_ticks: int) -> None:
        self._turns = turns
        self._free_ticks = free_ticks
        self._running, self._waiting = len(state.running), len(state.waiting)
        self._held_blocks = state.kv.blocks - state.kv.free
        self._first_number = turns[-1].plan.number + 1
        self._begins: list[int] = []
        self._ends = [turn.plan.end_ticks for turn in turns]
        self.arrived_before: list[int] = []
        """For each request that joined the queue meanwhile, how many of the iterations were planned before."""
        self._follow(iterations)
        self.end_after(iterations)
        until_ns = [turn.plan.until_ns for turn in turns if turn.plan.until_ns is not None]
        if until_ns and state.waiting:
            self.end_after(min(iterations, self.planned_before(min(until_ns) + 1)))

    def _follow(self, iterations: int) -> None:
        """Compute when so many iterations begin and end."""
        times = [[*turn.first_and_longer(turn.occupancy), *turn.first_and_longer(turn.latency)] for turn in self._turns]
        free, begins, ends = self._free_ticks, self._begins, self._ends
        end = ends[-1]
        for ready, own in zip(islice(ends, iterations), cycle(times)):
            occupancy, latency = own[0], own[2]
            begin = ready if ready > free else free
            free = begin + occupancy
            end = end_of(begin, occupancy, latency, end)
            begins.append(begin)
            ends.append(end)
            own[0], own[2] = occupancy + own[1], latency + own[3]

    def end_after(self, iterations: int) -> None:
        """Let so many iterations be leaped over."""
        self.iterations = iterations
        """How many iterations it leaps over."""
        self.over_ns = self._ends[iterations] >> TICK_BITS
        """When the next plan is made."""

    def planned_before(self, now_ns: int) -> int:
        """Iterations of the leap that are planned before ``now_ns``."""
        return bisect_left(self._ends, now_ns * TICKS_PER_NS, hi=self.iterations + 1)

    def rows(self, replica: int) -> Iterator[tuple[int, ...]]:
        """``ITERATION_FIELDS`` of all but the last of each micro batch: these have ended when the leap is over."""
        count, held, running, number = len(self._turns), self._held_blocks, self._running, self._first_number
        turns = [(turn.plan, turn.growing, turn.plan.clock, STOPPED_BY[turn.stopped_by]) for turn in self._turns]
        ends_ns = [ticks >> TICK_BITS for ticks in self._ends[: self.iterations]]
        for past, (begin, before_ns, end_ns) in enumerate(zip(self._begins, ends_ns, ends_ns[count:], strict=False)):
            again, which = divmod(past, count)
            plan, growing, clock, stopped_by = turns[which]
            sequences, context, sampled, _, _, window = plan.batch[4:]
            held += clock.blocks_due(again)
            yield (
                replica,
                number + past,
                begin >> TICK_BITS,
                end_ns,
                end_ns - before_ns,
                0,
                0,
                0,
                0,
                sequences,
                context + sequences * (again + 1),
                sampled,
                0,
                0,
                window + growing * (again + 1),
                plan.decodes,
                plan.decodes,
                running,
                self._waiting_at(past),
                held,
                0,
                0,
                stopped_by,
                *ONE,
            )
            held -= clock.left_blocks(again + 1)

    def carry_out(self, state: EngineState) -> list[Plan]:
        """Let the engine's state hear of the iterations, all but the last of each micro batch having ended.

        Returns these last ones.
        """
        count, ends = len(self._turns), self._ends
        first = max(self.iterations - count, 0)
        held = self._held_blocks + _blocks_over(self._turns, first) - _blocks_left(self._turns, first)
        last = []
        for number in range(first, self.iterations):
            plan = self._repetition(number)
            clock, again = plan.clock, number // count
            plan.kv_blocks = held + clock.blocks_due(again)
            gone, before = state.leap(plan, again + 1)
            held = plan.kv_blocks - (before - state.kv.blocks + state.kv.free)
            state.depart(plan, gone)
            if again:
                clock.ended_ticks = ends[number]
                own = ends[number % count : number + 1 : count]
                clock.gaps.push(plan.iteration - 1, max(later - earlier for earlier, later in pairwise(own)))
            last.append(plan)
        return last

    def free_ticks(self) -> int:
        """When the first stage is done with all of them."""
        if not self.iterations:
            return self._free_ticks
        again, which = divmod(self.iterations - 1, len(self._turns))
        first, longer = self._turns[which].first_and_longer(self._turns[which].occupancy)
        return self._begins[self.iterations - 1] + first + longer * again

    def _repetition(self, number: int) -> Plan:
        again, which = divmod(number, len(self._turns))
        turn = self._turns[which]
        plan = repeated(turn.plan, again + 1, turn.growing)
        plan.number = self._first_number + number
        plan.stopped_by = turn.stopped_by
        plan.running, plan.waiting = self._running, self._waiting_at(number)
        plan.takes_place(self._begins[number], self._ends[number + len(self._turns)])
        return plan

    def _waiting_at(self, number: int) -> int:
        return self._waiting + bisect_right(self.arrived_before, number)
