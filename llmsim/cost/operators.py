"""What an operator of an iteration costs, as a function of a few sums over the batch.

An ``Operator`` is a kernel on one accelerator: a soft roofline of FLOPs and HBM bytes, and its launch. A
``Collective`` is an exchange between accelerators. ``layers`` lists them for a deployment; ``analytic`` adds
them up.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from llmsim.cost.base import Account

Statistics = Mapping[str, Any]
"""Numbers, or arrays of one shape, by name: the fields of ``Batch``, and ``tokens`` (computed: prefill and
decode) and ``experts`` (distinct experts of a rank that they visit)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """A kernel that runs ``count`` times an iteration, unless its ``rows`` are 0.

    Each run takes ``sqrt(compute**2 + memory**2) + launch_s``, where compute = flop * work / flop_per_s and
    memory = (fixed_bytes + read_bytes * read + row_bytes * rows) / bytes_per_s; ``work``, ``read`` and
    ``rows`` name statistics. The soft maximum lies between the larger side and the sum: a kernel overlaps the
    two, but not wholly.
    """

    name: str
    count: float
    rows: str
    row_bytes: float = 0.0
    """Per row: activations read and written."""
    work: str = "tokens"
    flop: float = 0.0
    """Per unit of work."""
    fixed_bytes: float = 0.0
    """Weights, read whatever the batch."""
    read: str = "tokens"
    read_bytes: float = 0.0
    """Per unit of read: experts, or keys and values."""
    flop_per_s: float
    bytes_per_s: float
    launch_s: float

    def account(self, statistics: Statistics) -> Account:
        """What ``k`` iterations spend on it, from arrays of shape ``(k,)``; the time goes to its larger
        side."""
        rows = statistics[self.rows]
        runs = np.where(rows > 0, self.count, 0.0)
        flop = statistics[self.work] * self.flop * runs
        read = statistics[self.read] * self.read_bytes + rows * self.row_bytes
        hbm_bytes = (read + self.fixed_bytes) * runs
        compute, memory = flop / self.flop_per_s, hbm_bytes / self.bytes_per_s
        seconds = np.sqrt(compute * compute + memory * memory)
        zero = np.zeros(rows.shape)
        return Account(
            flop=flop,
            hbm_bytes=hbm_bytes,
            link_bytes=zero,
            compute_s=np.where(compute > memory, seconds, 0.0),
            hbm_s=np.where(compute > memory, 0.0, seconds),
            link_s=zero,
            overhead_s=self.launch_s * runs,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """An exchange among accelerators, ``count`` times an iteration, by the faster of two ways.

    All at once: ``one_shot_bytes`` sent a row after ``one_shot_launch_s``; or in pieces, around a ring or
    through the switch: ``ring_bytes`` sent a row after ``ring_launch_s``. Communication libraries choose
    likewise.
    """

    name: str
    count: float
    rows: str
    one_shot_bytes: float
    one_shot_bytes_per_s: float
    one_shot_launch_s: float
    ring_bytes: float
    ring_bytes_per_s: float
    ring_launch_s: float

    def account(self, statistics: Statistics) -> Account:
        """What ``k`` iterations spend on it, from arrays of shape ``(k,)``."""
        rows = statistics[self.rows]
        one_shot_s = rows * (self.one_shot_bytes / self.one_shot_bytes_per_s)
        ring_s = rows * (self.ring_bytes / self.ring_bytes_per_s)
        at_once = one_shot_s + self.one_shot_launch_s <= ring_s + self.ring_launch_s
        runs = np.where(rows > 0, self.count, 0.0)
        zero = np.zeros(rows.shape)
        return Account(
            flop=zero,
            hbm_bytes=zero,
            link_bytes=np.where(at_once, self.one_shot_bytes, self.ring_bytes) * rows * runs,
            compute_s=zero,
            hbm_s=zero,
            link_s=np.where(at_once, one_shot_s, ring_s) * runs,
            overhead_s=np.where(at_once, self.one_shot_launch_s, self.ring_launch_s) * runs,
        )


def total(parts: Iterable[Account]) -> Account:
    """The sum of what several operators do."""
    return Account(*(sum(columns) for columns in zip(*parts, strict=True)))


def seconds(account: Account) -> Any:
    """The duration an account adds up to."""
    return account.compute_s + account.hbm_s + account.link_s + account.overhead_s
