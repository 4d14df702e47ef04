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


SUSTAINED_FROM = 4096
"""Tokens: a product of more of them runs long enough for the chip to lower its clock to what its power allows. In the
operator tables of H100, H200 and B200 (aiconfigurator-core 0.12.0) the share of peak falls between 2,048 and 8,192."""

TAIL = 0.8
"""How long, in times of reading a mean row, few rows read on after the others, where each waits for a free place: 1.4
for lengths that vary by half (lognormal), 0.6 for equal ones, which the efficiencies contain (list scheduling,
simulated)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """A kernel that runs ``count`` times an iteration, unless its ``rows`` are 0.

    Each run takes ``sqrt(compute**2 + memory**2) + launch_s``; ``work``, ``read`` and ``rows`` name statistics::

        compute = ((flop + tile_flop) * work + padding_flop * read) / flop_per_s
        memory = (fixed_bytes + read_bytes * read + row_bytes * rows) / bytes_per_s

    Work beyond ``SUSTAINED_FROM`` units goes at ``sustained`` times the rate. The soft maximum lies between the larger
    side and the sum: a kernel overlaps the two, but not wholly.
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
    tile_flop: float = 0.0
    """Per unit of work: starting and ending the product's tiles. Time, but no work."""
    padding_flop: float = 0.0
    """Per unit of read: rows that fill tiles. Time, but no work."""
    sustained: float = 1.0
    tile_rows: int = 1
    """Units of work come in tiles of so many, when there are more than fill one."""
    at_once: float = 0.0
    """Rows that are read at once, each from beginning to end, so that the longest read on alone; 0: the reading is
    divided evenly, however long each is."""

    def tail(self, rows: Any) -> Any:
        """How many times as long reading takes as if all rows were equally long."""
        return 1 + TAIL * np.minimum(self.at_once / rows, 1.0)

    def account(self, statistics: Statistics) -> Account:
        """What ``k`` iterations spend on it, from arrays of shape ``(k,)``; the time goes to its larger
        side."""
        rows, work, units = statistics[self.rows], statistics[self.work], statistics[self.read]
        runs = np.where(rows > 0, self.count, 0.0)
        flop = work * self.flop * runs
        hbm_bytes = (units * self.read_bytes + rows * self.row_bytes + self.fixed_bytes) * runs
        tiled = np.where(work > self.tile_rows, np.ceil(work / self.tile_rows) * self.tile_rows, work)
        slowed = tiled + np.maximum(tiled - SUSTAINED_FROM, 0) * (1 / self.sustained - 1)
        compute = (slowed * (self.flop + self.tile_flop) + units * self.padding_flop) * runs / self.flop_per_s
        memory = hbm_bytes / self.bytes_per_s
        if self.at_once:
            memory = memory * self.tail(np.maximum(rows, 1))
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
