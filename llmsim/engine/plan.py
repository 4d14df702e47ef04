"""What one call of a scheduler decided: an iteration, before and while it runs."""

from dataclasses import dataclass, field
from typing import Literal, get_args

from llmsim.cost.base import Batch
from llmsim.engine.sequence import Sequence

StoppedBy = Literal["empty", "slots", "kv", "budget", "preempted"]
"""Why admission stopped: nobody waits, max_num_seqs, KV blocks, the token budget, or a preemption in this iteration."""

STOPPED_BY: tuple[StoppedBy, ...] = get_args(StoppedBy)


@dataclass(slots=True, eq=False)
class Plan:
    """One iteration as decided: which prompts advance. Every decode on the clock is in it too, unless delayed."""

    iteration: int
    prefills: list[tuple[Sequence, int]] = field(default_factory=list)
    """Sequences that compute prompt tokens (or recompute), and how many."""
    admitted: list[tuple[Sequence, int]] = field(default_factory=list)
    """Admitted sequences, and the prefix-cache tokens each found."""
    preempted: list[Sequence] = field(default_factory=list)
    delayed: list[Sequence] = field(default_factory=list)
    """Decodes that the token budget did not reach."""
    rejoined: list[Sequence] = field(default_factory=list)
    """Decodes of this iteration that the one before it had delayed."""
    sampled: list[Sequence] = field(default_factory=list)
    """Sequences whose prefill is complete with this iteration: each samples a token."""
    late: list[Sequence] = field(default_factory=list)
    """Decodes of this iteration that left the clock before their token was delivered."""
    finishing: list[Sequence] = field(default_factory=list)
    """Decodes on the clock whose last token this iteration samples."""
    stopped_by: StoppedBy = "empty"
    decodes: int = 0
    wasted: int = 0
    """Decodes of sequences that have stopped, which the scheduler could not know yet: nobody gets the token."""
    batch: Batch = Batch(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    running: int = 0
    """Requests running after scheduling."""
    waiting: int = 0
    kv_blocks: int = 0
    start_ns: int = 0
    end_ns: int = 0

    @property
    def quiet(self) -> bool:
        """Whether nothing happens at its end but that every decode has one token more."""
        return not (self.sampled or self.finishing or self.late or self.rejoined or self.delayed or self.preempted)
