"""One engine in time: the shell that lets a scheduler plan, the cost model say how long, and SimPy wait.

The loop is the one of vLLM's engine core. An iteration is planned while fewer than ``batches_in_flight`` are under way (1
when scheduling is synchronous, 2 when it is asynchronous: then a plan is made when the iteration before it starts, and
does not know that iteration's tokens). When the oldest iteration ends its tokens are delivered, and the next is planned.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from simpy import Environment, Event

from llmsim.cost.base import CostModel
from llmsim.engine.decisions import Decisions
from llmsim.engine.leap import Leap, propose
from llmsim.engine.moment import ITERATION_ENDS, SCHEDULE, Moment
from llmsim.engine.plan import STOPPED_BY, Plan
from llmsim.engine.sequence import NEVER, Sequence
from llmsim.engine.state import EngineState
from llmsim.engine.vllm import VllmPolicy
from llmsim.results.recorder import Recorder
from llmsim.units import NS_PER_S


class Replica:
    """One engine: its requests, its scheduler and its time."""

    __slots__ = (
        "_cost",
        "_decisions",
        "_env",
        "_free_ns",
        "_leap",
        "_leaps",
        "_moment",
        "_policy",
        "_recorder",
        "_schedule_pending",
        "leaped_iterations",
        "number",
        "on_end",
        "outstanding",
        "state",
    )

    def __init__(
        self,
        env: Environment,
        number: int,
        state: EngineState,
        policy: VllmPolicy,
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
        self._cost = cost
        self._recorder = recorder
        self._decisions = decisions
        self._schedule_pending = False
        self._free_ns = 0
        self._leaps = leaps and decisions is None
        self._leap: Leap | None = None
        self.leaped_iterations = 0
        self.on_end: Callable[[Sequence], None] = _forget
        """Called when a request leaves."""
        self.outstanding = 0
        """Requests sent here that have not ended."""

    def deliver(self, sequence: Sequence) -> None:
        """Put a request into the waiting queue, now."""
        now = int(self._env.now)
        sequence.queued_ns = now
        leads = self.state.waiting.would_lead(sequence)
        self.state.waiting.add(sequence)
        if self._decisions is not None:
            self._decisions.arrived(sequence)
        if not self.state.flights:
            self._schedule_soon()
        elif self._leap is not None:
            self._arrive_in_leap(self._leap, now, leads)

    def _arrive_in_leap(self, leap: Leap, now: int, leads: bool) -> None:
        """Only a request that would be admitted next can change what the leap has planned."""
        if leads:
            leap.cut(now)
            self._moment.cancel()
            self._moment = Moment(self._env, leap.over_ns, ITERATION_ENDS + self.number, self._end_iteration)
        leap.arrived_before.append(leap.planned_before(now))

    def _schedule_soon(self) -> None:
        if not self._schedule_pending:
            self._schedule_pending = True
            Moment(self._env, int(self._env.now), SCHEDULE + self.number, self._schedule)

    def _schedule(self, event: Event | None = None) -> None:
        """Plan iterations until enough are in flight, and wait for the oldest."""
        self._schedule_pending = False
        state = self.state
        flights = state.flights
        while len(flights) < state.batches_in_flight:
            plan = self._policy.schedule()
            if plan is None:
                break
            self._start(plan)
        if not flights:
            if self._decisions is not None and state.waiting:
                self._decisions.stuck(int(self._env.now), state)
            return
        if self._leaps and len(flights) == state.batches_in_flight:
            self._leap = propose(state, self._cost)
        due = flights[0].end_ns if self._leap is None else self._leap.over_ns
        self._moment = Moment(self._env, due, ITERATION_ENDS + self.number, self._end_iteration)

    def _start(self, plan: Plan) -> None:
        """Let a planned iteration begin when the one before it is done."""
        now = int(self._env.now)
        batch = plan.batch
        plan.start_ns = max(now, self._free_ns)
        occupancy = latency = 0
        if batch.prefill_tokens or batch.decode_sequences:
            step = self._cost.step(batch)
            occupancy = max(1, round(step.occupancy_s * NS_PER_S))
            latency = max(1, round(step.latency_s * NS_PER_S))
        self._free_ns = plan.start_ns + occupancy
        plan.end_ns = plan.start_ns + latency
        for sequence, _ in plan.admitted:
            if sequence.first_scheduled_ns < 0:
                sequence.first_scheduled_ns = now
            elif sequence.preempted_ns >= 0:
                sequence.resumed_ns = now
        for sequence in plan.preempted:
            sequence.preempted_ns = now
        self.state.flights.append(plan)
        if self._decisions is not None:
            self._decisions.planned(plan, now, self.state)

    def _end_iteration(self, event: Event) -> None:
        """Deliver the oldest iteration's tokens, or a leap's, and plan the next one."""
        env, flights = self._env, self.state.flights
        if self._leap is None:
            self._land(flights.popleft())
        else:
            self._carry_out(self._leap, self._leap.iterations + 1)
        if env.peek() > env.now:
            self._schedule()
        else:
            self._schedule_soon()

    def _land(self, plan: Plan) -> None:
        """An iteration has ended: tokens out, finished requests leave, blocks freed."""
        ended = self._deliver_tokens(plan)
        for sequence in ended:
            self._finish(sequence)
        self._record(plan)
        if self._decisions is not None:
            self._decisions.ended(plan, ended, self.state)

    def _carry_out(self, leap: Leap, landed: int) -> None:
        """Make a leap's iterations happen; ``landed`` of those in flight before and of the leap's have ended."""
        self._leap = None
        state = self.state
        before = len(state.flights)
        columns = leap.columns(state.block_size, state.clock.residues)
        gone = leap.carry_out(state)
        for _ in range(min(landed, before)):
            self._land(state.flights.popleft())
        if not leap.iterations:
            return
        self.leaped_iterations += leap.iterations
        self._free_ns = int(columns["end_ns"][-1])
        done = max(0, landed - before)
        later = [self._repeat(leap.plan, columns, i) for i in range(done, leap.iterations)]
        if done:
            last = self._repeat(leap.plan, columns, done - 1)
            state.depart(last, [] if later else gone)
            self._land_run(last, {name: column[:done] for name, column in columns.items()})
        if later:
            state.depart(later[-1], gone)
            state.flights.extend(later)

    def _land_run(self, last: Plan, columns: dict[str, NDArray[np.int64]]) -> None:
        """Consecutive iterations of a leap have ended, of which only the last can end a request."""
        ends = columns["end_ns"]
        if len(ends) > 1:
            self.state.gaps.push(last.iteration - 1, int(np.max(ends[:-1] - columns["start_ns"][:-1])))
            self.state.ended_ns = int(ends[-2])
        row = self._row(last)
        for sequence in self._deliver_tokens(last):
            self._finish(sequence)
        self._recorder.run(row, columns)

    def _repeat(self, plan: Plan, columns: dict[str, NDArray[np.int64]], number: int) -> Plan:
        """An iteration of a leap as a plan of its own."""
        values = {name: int(column[number]) for name, column in columns.items()}
        batch = plan.batch._replace(
            decode_context_tokens=values.pop("decode_context_tokens"),
            decode_window_tokens=values.pop("decode_window_tokens"),
        )
        return Plan(
            **values, batch=batch, decodes=plan.decodes, running=plan.running, stopped_by=plan.stopped_by
        )

    def _deliver_tokens(self, plan: Plan) -> list[Sequence]:
        """Hand out the tokens of an iteration; returns the sequences that ended with it, in order of admission."""
        state, end = self.state, plan.end_ns
        if plan.decodes:
            state.gaps.push(plan.iteration, end - state.ended_ns)
        state.ended_ns = end
        for sequence in plan.rejoined:
            self._emit_again(sequence, end)
        ended = plan.finishing
        for sequence in plan.finishing:
            sequence.emitted = sequence.target
            sequence.max_itl_ns = max(sequence.max_itl_ns, state.gaps.longest_since(sequence.joined))
        for sequence in plan.late:
            sequence.emitted += 1
            sequence.max_itl_ns = max(sequence.max_itl_ns, end - sequence.last_token_ns)
            sequence.last_token_ns = end
            if sequence.emitted == sequence.target:
                ended = [*ended, sequence]
        for sequence in plan.sampled:
            if sequence.first_token_ns < 0:
                sequence.first_token_ns = end
            else:
                self._emit_again(sequence, end)
            sequence.last_token_ns = end
            sequence.emitted += 1
            if sequence.emitted == sequence.target:
                ended = [*ended, sequence]
        return sorted(ended, key=_rank) if len(ended) > 1 else ended

    def _emit_again(self, sequence: Sequence, end: int) -> None:
        """A token after a stall: its gap is not the iteration's."""
        gap = end - sequence.last_token_ns
        sequence.max_itl_ns = max(sequence.max_itl_ns, gap)
        self._recorder.stall(end, gap)
        if sequence.preempted_ns >= 0:
            self._record_preemption(sequence, end)
            sequence.preempted_ns = sequence.resumed_ns = NEVER

    def _finish(self, sequence: Sequence) -> None:
        if sequence.running:
            self.state.finish(sequence)
        else:
            self.state.waiting.remove(sequence)
        sequence.finish_ns = self.state.ended_ns
        self.leave(sequence, "finished", "stop" if sequence.stops else "length")

    def leave(self, sequence: Sequence, outcome: str, reason: str) -> None:
        """Record a request's end, whatever it is."""
        if sequence.preempted_ns >= 0:
            self._record_preemption(sequence, NEVER)
        self.outstanding -= 1
        self._recorder.request(
            sequence.row,
            (
                self.number,
                sequence.queued_ns,
                sequence.first_scheduled_ns,
                sequence.first_token_ns,
                sequence.finish_ns,
                sequence.emitted,
                sequence.cached_tokens,
                sequence.preemptions,
                sequence.recomputed_tokens,
                sequence.max_itl_ns,
            ),
            outcome,
            reason,
        )
        self.on_end(sequence)

    def stop(self, now_ns: int) -> None:
        """The run is over at ``now_ns``: iterations that have ended by then have happened, later ones have not."""
        if self._leap is not None:
            self._leap.cut(now_ns + 1)
            self._carry_out(self._leap, self._leap.iterations)

    def settle(self, sequence: Sequence) -> None:
        """Bring the tokens that a sequence has emitted on the clock up to now into the sequence."""
        state = self.state
        delivered = state.flights[0].iteration if state.flights else state.clock.iteration
        last = min(delivered, sequence.finishes + 1, sequence.leaves + 1)
        if sequence.running and last > sequence.joined:
            sequence.emitted += last - sequence.joined
            sequence.max_itl_ns = max(sequence.max_itl_ns, state.gaps.longest_since(sequence.joined))

    def _record(self, plan: Plan) -> None:
        self._recorder.iteration(self._row(plan))

    def _row(self, plan: Plan) -> tuple[int, ...]:
        """An iteration as ``ITERATION_FIELDS``."""
        return (
            self.number,
            plan.iteration,
            plan.start_ns,
            plan.end_ns,
            *plan.batch,
            plan.decodes - plan.wasted + len(plan.sampled),
            plan.decodes - plan.wasted - len(plan.rejoined),
            plan.running,
            plan.waiting,
            plan.kv_blocks,
            len(plan.preempted),
            sum(tokens for _, tokens in plan.admitted) if plan.admitted else 0,
            STOPPED_BY.index(plan.stopped_by),
        )

    def _record_preemption(self, sequence: Sequence, caught_up_ns: int) -> None:
        self._recorder.preemption(
            sequence.row, self.number, sequence.preempted_ns, sequence.resumed_ns, caught_up_ns
        )


def _forget(sequence: Sequence) -> None:
    """Nobody waits for the request's end."""


def _rank(sequence: Sequence) -> int:
    return sequence.rank
