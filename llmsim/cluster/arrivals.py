"""When requests are sent: rows of the table at their times, successors when their predecessor has ended."""

import heapq
from collections import defaultdict
from collections.abc import Callable

import numpy as np
from simpy import Environment

from llmsim.engine.moment import ARRIVAL, Moment
from llmsim.workload.table import RequestTable


class Arrivals:
    """Calls ``send(row, now_ns)`` for every row ``delay_ns`` after it is due; rows of one instant in row order."""

    def __init__(
        self, env: Environment, table: RequestTable, send: Callable[[int, int], None], delay_ns: int = 0
    ) -> None:
        self._env = env
        self._table = table
        self._send = send
        self._delay_ns = delay_ns
        rows = np.flatnonzero(table.after < 0)
        self._rows = rows.data  # views whose items are Python's integers
        self._due_ns = (table.arrival_ns[rows] + delay_ns).data
        self._next = 0
        self._due: list[tuple[int, int]] = []
        self._successors: dict[int, list[int]] = defaultdict(list)
        for row in np.flatnonzero(table.after >= 0).tolist():
            self._successors[int(table.after[row])].append(row)
        self._wait()

    def ended(self, row: int, now_ns: int) -> None:
        """A request ended at ``now_ns``, one way or another: its successors will be sent after their think time."""
        if row not in self._successors:
            return
        table = self._table
        for successor in self._successors.pop(row):
            self.send_at(successor, max(int(table.arrival_ns[successor]), now_ns + int(table.think_ns[successor])))

    def send_at(self, row: int, at_ns: int) -> None:
        """Send a request at this time."""
        due = at_ns + self._delay_ns
        heapq.heappush(self._due, (due, row))
        Moment(self._env, due, ARRIVAL, self._send_due)

    def unsent(self) -> dict[int, int]:
        """When the rows that have not been sent would be, as far as that does not depend on a predecessor's end."""
        due = dict(zip(self._rows[self._next :], self._due_ns[self._next :], strict=True)) | {
            row: due_ns for due_ns, row in self._due
        }
        return {row: due_ns - self._delay_ns for row, due_ns in due.items()}

    def _wait(self) -> None:
        if self._next < len(self._rows):
            Moment(self._env, self._due_ns[self._next], ARRIVAL, self._arrive)

    def _arrive(self, moment: Moment) -> None:
        """Rows of the table that are due, and wait for the next one."""
        now, due = moment.at_ns, self._due
        at, last = self._next, len(self._rows)
        while at < last and self._due_ns[at] == now:
            heapq.heappush(due, (now, self._rows[at]))
            at += 1
        self._next = at
        self._send_due(moment)
        self._wait()

    def _send_due(self, moment: Moment) -> None:
        due, now = self._due, moment.at_ns
        while due and due[0][0] <= now:
            self._send(heapq.heappop(due)[1], now)
