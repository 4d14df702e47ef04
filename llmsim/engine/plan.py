"""What one call of a scheduler decided: an iteration, before and while it runs."""

from typing import Literal, get_args

from llmsim.cost.base import Batch
from llmsim.engine.clock import IterationClock
from llmsim.engine.sequence import Sequence
from llmsim.units import TICK_BITS

StoppedBy = Literal["empty", "slots", "kv", "budget", "preempted", "delay"]
"""Why admission stopped: nobody waits, max_num_seqs, KV blocks, the token budget, a preemption in this iteration, or
the scheduler holds prompts back for a time."""

STOPPED_BY: dict[StoppedBy, int] = {reason: number for number, reason in enumerate(get_args(StoppedBy))}
"""The number of each reason in the rows of iterations."""


_IDLE = Batch(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


class Plan:
    """One iteration as decided: which prompts advance. Every decode on the clock is in it too, unless delayed.

    Most plans are of decodes only; what they leave out stands in the class, so that making one costs little.
    """

    prefills: tuple[tuple[Sequence, int], ...] = ()
    """Sequences that compute prompt tokens (or recompute), and how many."""
    admitted: tuple[tuple[Sequence, int], ...] = ()
    """Admitted sequences, and the prefix-cache tokens each found."""
    preempted: tuple[Sequence, ...] = ()
    delayed: tuple[Sequence, ...] = ()
    """Decodes that the token budget did not reach."""
    rejoined: tuple[Sequence, ...] = ()
    """Decodes of this iteration that the one before it had delayed."""
    sampled: tuple[Sequence, ...] = ()
    """Sequences whose prefill is complete with this iteration: each samples a token."""
    late: tuple[Sequence, ...] = ()
    """Decodes of this iteration that left the clock before their token was delivered."""
    finishing: tuple[Sequence, ...] = ()
    """Decodes on the clock whose last token this iteration samples."""
    stopped_by: StoppedBy = "empty"
    decodes: int = 0
    wasted: int = 0
    """Decodes of sequences that have stopped, which the scheduler could not know yet: nobody gets the token."""
    batch: Batch = _IDLE
    running: int = 0
    """Requests running after scheduling."""
    waiting: int = 0
    kv_blocks: int = 0
    awaited_blocks: int = 0
    """When KV blocks stopped admission: it will not go on before so many are free."""
    repeats: bool = True
    """Whether the next plan is the same again, with every context one token longer, as long as nothing happens."""
    until_ns: int | None = None
    """The last instant at which the next plan would still be the same; None: it changes at no time by itself."""
    start_ticks: int = 0
    end_ticks: int = 0
    start_ns: int = 0
    end_ns: int = 0

    def __init__(self, clock: IterationClock, number: int) -> None:
        self.clock = clock
        """Whose decodes it computes."""
        self.iteration = clock.iteration
        """Number of the iteration on its clock."""
        self.number = number
        """Number of the iteration on the engine."""

    def takes_place(self, start_ticks: int, end_ticks: int) -> None:
        """Note when it begins and ends."""
        self.start_ticks, self.end_ticks = start_ticks, end_ticks
        self.start_ns, self.end_ns = start_ticks >> TICK_BITS, end_ticks >> TICK_BITS

    def row(self, replica: int, end_ns: int, apart: tuple[int, ...]) -> tuple[int, ...]:
        """``ITERATION_FIELDS``, of this iteration, or of several that end at ``end_ns`` and differ by ``apart``."""
        emitting = self.decodes - self.wasted
        return (
            replica,
            self.number,
            self.start_ns,
            end_ns,
            self.end_ns - (self.clock.ended_ticks >> TICK_BITS),
            *self.batch,
            emitting + len(self.sampled),
            emitting - len(self.rejoined),
            self.running,
            self.waiting,
            self.kv_blocks,
            len(self.preempted),
            sum([tokens for _, tokens in self.admitted]) if self.admitted else 0,
            STOPPED_BY[self.stopped_by],
            *apart,
        )

    def forget(self, sequence: Sequence) -> None:
        """Let its end mean nothing to a sequence that has been aborted."""
        self.rejoined, self.sampled, self.late, self.finishing = (
            tuple(each for each in group if each is not sequence)
            for group in (self.rejoined, self.sampled, self.late, self.finishing)
        )

    @property
    def quiet(self) -> bool:
        """Whether nothing happens at its end but that every decode has one token more."""
        return not (self.sampled or self.finishing or self.late or self.rejoined or self.delayed or self.preempted)
