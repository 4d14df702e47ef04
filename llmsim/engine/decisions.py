"""A log of every decision of an engine, in the form in which decisions of the real scheduler are recorded."""

from typing import Any

from llmsim.engine.plan import Plan
from llmsim.engine.sequence import Sequence
from llmsim.engine.state import EngineState


class Decisions:
    """One dictionary an iteration, in ``steps``; requests are named by their row.

    Keys: step, t (when it was planned), gpu_start, gpu_end, dur, arrived (rows queued since the last plan), sched
    ([row, tokens] in scheduling order), total, ctx, new, resumed, preempted, hits (row -> tokens), running, waiting,
    free_blocks, cached_hashes (distinct prefixes that can be found), emitted, finished ([row, reason]),
    free_blocks_end.
    """

    def __init__(self) -> None:
        self.steps: list[dict[str, Any]] = []
        self._arrived: list[int] = []
        self._started: set[int] = set()
        self._open: dict[int, dict[str, Any]] = {}

    def arrived(self, sequence: Sequence) -> None:
        """A request has joined the queue."""
        self._arrived.append(sequence.row)

    def planned(self, plan: Plan, now_ns: int, state: EngineState) -> None:
        """An iteration has been planned."""
        new = [s.row for s, _ in plan.admitted if s.row not in self._started]
        sched = self._scheduled(plan, state)
        self._open[plan.number] = self._log(
            plan,
            now_ns,
            state,
            gpu_start=plan.start_ns,
            gpu_end=plan.end_ns,
            dur=plan.end_ns - plan.start_ns,
            sched=sched,
            total=sum(tokens for _, tokens in sched),
            ctx=plan.batch.prefill_context_tokens + plan.batch.decode_context_tokens,
            new=new,
            resumed=[s.row for s, _ in plan.admitted if s.row in self._started],
            preempted=[s.row for s in plan.preempted],
            hits={s.row: tokens for s, tokens in plan.admitted},
            emitted=self._emitting(plan, state),
        )
        self._started.update(new)

    def stuck(self, now_ns: int, state: EngineState) -> None:
        """Requests wait, nothing runs, and the head of the queue does not fit."""
        nothing: dict[str, Any] = {key: [] for key in ("sched", "new", "resumed", "preempted", "emitted", "finished")}
        times = {"gpu_start": now_ns, "gpu_end": now_ns, "dur": 0, "total": 0, "ctx": 0, "hits": {}}
        plan = Plan(state.clock, state.clock.iteration)
        plan.kv_blocks = state.kv.blocks - state.kv.free
        self._log(plan, now_ns, state, **nothing, **times, free_blocks_end=state.kv.free)

    def _log(self, plan: Plan, now_ns: int, state: EngineState, **fields: Any) -> dict[str, Any]:
        step = {
            "step": plan.number,
            "t": now_ns,
            "arrived": self._arrived,
            "running": [s.row for s in state.running],
            "waiting": [s.row for s in state.waiting.listed()],
            "free_blocks": state.kv.blocks - plan.kv_blocks,
            "cached_hashes": state.kv.cached_keys([(s, state.registered(s, plan.iteration)) for s in state.running]),
            **fields,
        }
        self._arrived = []
        self.steps.append(step)
        return step

    def ended(self, plan: Plan, ended: list[Sequence], state: EngineState) -> None:
        """An iteration has ended: its tokens are delivered, and ``ended`` have finished."""
        step = self._open.pop(plan.number)
        step["finished"] = [[s.row, "stop" if s.stops else "length"] for s in ended]
        step["free_blocks_end"] = state.kv.free

    def _emitting(self, plan: Plan, state: EngineState) -> list[int]:
        """Rows of everything scheduled that will emit a token, in order of admission."""
        sampled = set(plan.sampled)
        return [s.row for s in state.running if s in sampled or self._decodes(s, plan, wasted=False)]

    def _scheduled(self, plan: Plan, state: EngineState) -> list[list[int]]:
        """Row and tokens of everything scheduled, in order of admission."""
        prefills = dict(plan.prefills)
        return [
            [s.row, prefills.get(s, 1)] for s in state.running if s in prefills or self._decodes(s, plan, wasted=True)
        ]

    def _decodes(self, sequence: Sequence, plan: Plan, *, wasted: bool) -> bool:
        last = sequence.leaves if wasted else min(sequence.leaves, sequence.finishes)
        return sequence.joined <= plan.iteration <= last
