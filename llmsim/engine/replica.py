"""One engine in time: the shell that lets a scheduler plan, the cost model say how long, and SimPy wait.

The loop is the one of vLLM's engine core. An iteration is planned while fewer than ``batches_in_flight`` are under way:
1 when scheduling is synchronous; 2 when it is asynchronous, where a plan is made when the iteration before it starts
and does not know that iteration's tokens; with pipeline stages as many as there are, each of another micro batch. When
the oldest iteration ends its tokens are delivered, and the next is planned.
"""

from collections.abc import Callable

from simpy import Environment

from llmsim.cost.base import CostModel
from llmsim.engine.decisions import Decisions
from llmsim.engine.lanes import TurnLeap, leap_of_lanes
from llmsim.engine.leap import SHORTEST, Leap, repetitions
from llmsim.engine.moment import ITERATION_ENDS, SCHEDULE, Moment
from llmsim.engine.pace import TICKS_PER_NS, Pace, end_of
from llmsim.engine.plan import Plan
from llmsim.engine.policy import Policy
from llmsim.engine.sequence import NEVER, Sequence
from llmsim.engine.state import EngineState
from llmsim.results.recorder import ONE, Recorder, Run
from llmsim.units import TICK_BITS

MOST_AT_ONCE = 1000
"""Iterations or leaps that happen without an event, before the event loop has its turn."""

MOST_PREEMPTIONS = 100
"""A request that has lost its blocks so often is aborted: the requests there are take them from one another for ever.
Under heavy KV exhaustion a real server preempted no request more than 4 times."""


class Replica:
    """One engine: its requests, its scheduler and its time."""

    def __init__(
        self,
        env: Environment,
        number: int,
        state: EngineState,
        policy: Policy,
        cost: CostModel,
        recorder: Recorder,
        *,
        leaps: bool = True,
        decisions: Decisions | None = None,
    ) -> None:
        self._env = env
        self.number = number
        self.state = state
        self._policy = policy
        self._pace = Pace(cost, windowed=state.window is not None)
        self._recorder = recorder
        self._decisions = decisions
        self._in_lanes = len(state.lanes) > 1
        self._leaps = leaps and decisions is None
        self._leap: Leap | TurnLeap | None = None
        self._moment: Moment | None = None
        """When the oldest iteration ends, or the leap."""
        self._aborting: dict[Sequence, str] = {}
        self._schedule_pending = False
        self._free_ticks = 0
        """When the first stage is done with all that has been planned, and what has ended has."""
        self._uneventful_plans = 0
        """Plans made since anything happened but a token for each decode; counted where there are lanes."""
        self.leaped_iterations = 0
        self.outstanding = 0
        """Requests sent here that have not ended."""
        self.on_end: Callable[[Sequence, str, str, int], None] = _forget
        """Called when a request leaves, with its outcome, the reason and the time in nanoseconds."""

    def deliver(self, sequence: Sequence, now: int) -> None:
        """Put a request into the waiting queue, at the time it is."""
        state, leap = self.state, self._leap
        sequence.queued_ns = now
        leads = state.waiting.would_lead(sequence)
        if leads:
            self._uneventful_plans = 0
        if leap is not None:
            planned = leap.planned_before(now)
            if leads:
                self._cut(leap, planned)
            leap.arrived_before.append(planned)
        state.waiting.add(sequence)
        self._recorder.census.change(now, 0, 1)
        if self._decisions is not None:
            self._decisions.arrived(sequence)
        if not state.flights:
            self._schedule_soon(now)

    def abort(self, sequence: Sequence, reason: str) -> None:
        """Let go of a request, waiting or running, as soon as the engine looks: between two iterations."""
        self._aborting.setdefault(sequence, reason)
        if self._leap is not None:
            self._cut(self._leap, self._leap.planned_before(int(self._env.now)))
        elif not self.state.flights:
            self._schedule_soon(int(self._env.now))

    def stop(self, now_ns: int) -> None:
        """The run is over at ``now_ns``: iterations that have ended by then have happened, later ones have not."""
        if self._leap is not None:
            self._leap.end_after(min(self._leap.iterations, self._leap.planned_before(now_ns + 1)))
            self._carry_out(self._leap, self._leap.iterations)

    def leave(self, sequence: Sequence, outcome: str, reason: str, now_ns: int) -> None:
        """A request is no longer here, for whatever reason."""
        if sequence.preempted_ns >= 0:
            self._record_preemption(sequence, NEVER)
        self.outstanding -= 1
        self.on_end(sequence, outcome, reason, now_ns)

    def _cut(self, leap: Leap | TurnLeap, planned: int) -> None:
        """End a leap after so many of its iterations: at the first plan that can know of what happens now."""
        if planned >= leap.iterations:
            return
        leap.end_after(planned)
        if self._moment is not None:
            self._moment.cancel()
        self._moment = Moment(self._env, leap.over_ns, ITERATION_ENDS + self.number, self._end_iteration)

    def _schedule_soon(self, now: int) -> None:
        if not self._schedule_pending:
            self._schedule_pending = True
            Moment(self._env, now, SCHEDULE + self.number, self._schedule)

    def _schedule(self, moment: Moment) -> None:
        """Plan at the end of an instant."""
        self._schedule_pending = False
        self._go_on(moment.at_ns)

    def _go_on(self, now: int) -> None:
        """Plan, and let happen what ends before anything else can: it needs no event."""
        state, peek = self.state, self._env.peek
        for _ in range(MOST_AT_ONCE):
            self._plan(now)
            if not state.flights:
                return
            ends = state.flights[0].end_ns if self._leap is None else self._leap.over_ns
            if ends >= peek():
                self._moment = Moment(self._env, ends, ITERATION_ENDS + self.number, self._end_iteration)
                return
            now = ends
            self._land_oldest()
            if peek() <= now:
                break
        self._schedule_soon(now)

    def _plan(self, now: int) -> None:
        """Plan iterations until enough are in flight."""
        if self._aborting:
            self._abort_now(now)
        state = self.state
        flights = state.flights
        while len(flights) < state.batches_in_flight:
            plan = self._policy.schedule(now)
            if plan is None:
                break
            self._start(plan, now)
            self._uneventful_plans += 1
        if self._in_lanes and self._leaps and flights:
            self._leap = leap_of_lanes(state, self._pace, self._free_ticks, self._uneventful_plans)
        if not flights and state.waiting and self._decisions is not None:
            self._decisions.stuck(now, state)

    def _abort_now(self, now: int) -> None:
        for sequence, reason in self._aborting.items():
            if sequence.finish_ns >= 0:
                continue
            running = sequence.running
            self.state.abort(sequence)
            self._recorder.census.change(now, -running, running - 1)
            self.leave(sequence, "aborted", reason, now)
        self._aborting.clear()
        self._uneventful_plans = 0

    def _start(self, plan: Plan, now: int) -> None:
        """Let a planned iteration begin when the one before it is done, or a leap that begins with it."""
        state, batch = self.state, plan.batch
        flights, cell = state.flights, None
        begin = now * TICKS_PER_NS
        if begin < self._free_ticks:
            begin = self._free_ticks
        occupancy = latency = 0
        if batch.prefill_sequences:
            occupancy, latency = self._pace.step(batch)
        elif batch.decode_sequences:
            context, window = batch.decode_context_tokens, batch.decode_window_tokens
            cell = self._pace.decodes(batch.decode_sequences, context, window)
            occupancy = latency = cell.occupancy.at(context, window)
            if cell.latency is not cell.occupancy:
                latency = cell.latency.at(context, window)
        self._free_ticks = free = begin + occupancy
        end = end_of(begin, occupancy, latency, flights[-1].end_ticks) if flights else begin + latency
        plan.takes_place(begin, end)
        if (
            cell is not None
            and self._leaps
            and end == free
            and not self._in_lanes
            and len(flights) + 1 == state.batches_in_flight
            and (repeats := repetitions(state, plan, cell)) >= SHORTEST
        ):
            self._leap = Leap(state, plan, repeats, cell)
        if plan.admitted or plan.preempted:
            self._note_moves(plan, now)
        flights.append(plan)
        if self._decisions is not None:
            self._decisions.planned(plan, now, state)

    def _note_moves(self, plan: Plan, now: int) -> None:
        """Note who has been admitted and who preempted by a plan."""
        started = len(plan.admitted) - len(plan.preempted)
        self._recorder.census.change(now, started, -started)
        for sequence, _ in plan.admitted:
            if sequence.first_scheduled_ns < 0:
                sequence.first_scheduled_ns = now
            elif sequence.preempted_ns >= 0:
                sequence.resumed_ns = now
        for sequence in plan.preempted:
            if sequence.preempted_ns >= 0:
                self._record_preemption(sequence, NEVER)
            sequence.preempted_ns = now
            if sequence.preemptions >= MOST_PREEMPTIONS:
                self._aborting.setdefault(sequence, "livelock")

    def _end_iteration(self, moment: Moment) -> None:
        """Deliver the oldest iteration's tokens, or a leap's, and plan the next one."""
        self._land_oldest()
        if self._env.peek() > moment.at_ns:
            self._go_on(moment.at_ns)
        else:
            self._schedule_soon(moment.at_ns)

    def _land_oldest(self) -> None:
        if self._leap is None:
            self._land(self.state.flights.popleft())
        else:
            self._carry_out(self._leap, self._leap.iterations + 1)

    def _land(self, plan: Plan) -> None:
        """An iteration has ended: tokens out, finished requests leave, blocks freed."""
        row = plan.row(self.number, plan.end_ns, ONE)
        ended = self._deliver_tokens(plan, plan.end_ticks - plan.clock.ended_ticks)
        self._recorder.iteration(row)
        if self._decisions is not None:
            self._decisions.ended(plan, ended, self.state)

    def _carry_out(self, leap: Leap | TurnLeap, landed: int) -> None:
        """Make a leap's iterations happen; ``landed`` of those in flight and of those leaped over have ended."""
        self._leap = None
        if isinstance(leap, TurnLeap):
            self._carry_out_turns(leap, landed)
            return
        state, plan = self.state, leap.plan
        flights, clock = state.flights, plan.clock
        while landed and flights[0] is not plan:
            self._land(flights.popleft())
            landed -= 1
        run = None
        if self._recorder.keeps_iterations:
            second = state.kv.blocks - state.kv.free + clock.blocks_due()
            run = Run(second - plan.kv_blocks, clock.changes(), leap.arrived_before)
        gone: list[Sequence] = []
        blocks = held = plan.kv_blocks
        if leap.iterations:
            if 1 < landed <= leap.iterations:
                blocks = state.kv.blocks - state.kv.free + clock.blocks_over(landed - 1) - clock.left_over(landed - 2)
            gone, held = state.leap(plan, leap.iterations)
            self.leaped_iterations += leap.iterations
        self._free_ticks = leap.last_end_ticks
        later = leap.later(max(landed, 1), held) if landed <= leap.iterations else []
        if landed:
            flights.popleft()
            self._land_run(leap, run, landed, blocks if later else held, [] if later else gone)
        if later:
            state.depart(later[-1], gone)
            flights.extend(later)

    def _carry_out_turns(self, leap: TurnLeap, landed: int) -> None:
        """The same for a leap of several micro batches in turn."""
        flights = self.state.flights
        still_in_flight = len(flights) + leap.iterations - landed
        for _ in range(min(landed, len(flights))):
            self._land(flights.popleft())
        for row in leap.rows(self.number):
            self._recorder.iteration(row)
        flights.extend(leap.carry_out(self.state))
        self.leaped_iterations += leap.iterations
        self._free_ticks = max(self._free_ticks, leap.free_ticks())
        while len(flights) > still_in_flight:
            self._land(flights.popleft())

    def _land_run(self, leap: Leap, run: Run | None, iterations: int, blocks: int, gone: list[Sequence]) -> None:
        """A leap's first ``iterations`` iterations have ended, of which only the last can end a request.

        In the last one ``blocks`` KV blocks were held.
        """
        plan, clock = leap.plan, leap.plan.clock
        if iterations == 1:
            self._land(plan)
            return
        end_ticks = leap.last_end_ticks if iterations > leap.iterations else leap.end_ticks(iterations)
        phase_ticks = plan.start_ticks % TICKS_PER_NS
        apart = (iterations, blocks, leap.growing, phase_ticks, leap.ticks, leap.longer_ticks)
        row = plan.row(self.number, end_ticks >> TICK_BITS, apart)
        gap_ticks = max(plan.end_ticks - clock.ended_ticks, leap.longest_ticks(iterations))
        plan.iteration += iterations - 1
        plan.end_ticks, plan.end_ns = end_ticks, end_ticks >> TICK_BITS
        if gone or clock.stopping:
            self.state.depart(plan, gone)
        self._deliver_tokens(plan, gap_ticks)
        if run is not None:
            self._recorder.run(run)
        self._recorder.iteration(row)

    def _deliver_tokens(self, plan: Plan, gap_ticks: int) -> list[Sequence]:
        """Hand out the tokens of an iteration, the longest of its gaps being ``gap_ticks``.

        Returns the sequences that ended with it, in order of admission; they have left.
        """
        clock, end = plan.clock, plan.end_ns
        if plan.decodes:
            clock.gaps.push(plan.iteration, gap_ticks)
        clock.ended_ticks = plan.end_ticks
        if self._in_lanes:
            self._free_ticks = max(self._free_ticks, plan.end_ticks)
            if plan.prefills or not plan.quiet:
                self._uneventful_plans = 0
        for sequence in plan.rejoined:
            self._emit_again(sequence, end)
        ended = list(plan.finishing)
        for sequence in ended:
            sequence.emitted = sequence.target
            gap_ns = clock.longest_gap_ns(sequence)
            if gap_ns > sequence.max_itl_ns:
                sequence.max_itl_ns = gap_ns
        for sequence in plan.late:
            sequence.max_itl_ns = max(sequence.max_itl_ns, end - sequence.last_token_ns)
            self._emit(sequence, end, ended)
        for sequence in plan.sampled:
            if sequence.first_token_ns < 0:
                sequence.first_token_ns = end
            else:
                self._emit_again(sequence, end)
            if sequence.resumed_ns >= 0:
                self._record_preemption(sequence, end)
            self._emit(sequence, end, ended)
        if len(ended) > 1:
            ended.sort(key=_rank)
        for sequence in ended:
            self._finish(sequence, end)
        return ended

    def _emit(self, sequence: Sequence, end: int, ended: list[Sequence]) -> None:
        """One token of a sequence that was not on the clock."""
        sequence.last_token_ns = end
        sequence.emitted = emitted = sequence.emitted + 1
        if emitted == sequence.target:
            ended.append(sequence)

    def _emit_again(self, sequence: Sequence, end: int) -> None:
        """A token after a stall: its gap is not the iteration's."""
        gap = end - sequence.last_token_ns
        sequence.max_itl_ns = max(sequence.max_itl_ns, gap)
        self._recorder.stall(end, gap)

    def _finish(self, sequence: Sequence, now: int) -> None:
        if sequence.running:
            self.state.finish(sequence)
            self._recorder.census.change(now, -1, 0)
        else:
            self.state.waiting.remove(sequence)
            self._recorder.census.change(now, 0, -1)
        sequence.finish_ns = now
        self.leave(sequence, "finished", "stop" if sequence.stops else "length", now)

    def _record_preemption(self, sequence: Sequence, caught_up_ns: int) -> None:
        self._recorder.preemption(sequence.row, self.number, sequence.preempted_ns, sequence.resumed_ns, caught_up_ns)
        sequence.preempted_ns = sequence.resumed_ns = NEVER


def _forget(sequence: Sequence, outcome: str, reason: str, now_ns: int) -> None:
    """Nobody waits for the request's end."""


def _rank(sequence: Sequence) -> int:
    return sequence.rank
