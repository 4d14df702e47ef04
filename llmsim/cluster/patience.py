"""Clients that do not wait for ever: when they give up on a request, and when they send it again."""

import heapq
from collections.abc import Callable

from simpy import Environment, Event

from llmsim.engine.moment import TIMER, Moment
from llmsim.workload.table import RequestTable


class Patience:
    """Calls ``give_up(row)`` when an answer has taken as long as its client waits for it.

    One event waits at a time, so that requests answered in time cost no event of their own.
    """

    def __init__(self, env: Environment, table: RequestTable, give_up: Callable[[int], None]) -> None:
        self._env = env
        self._timeout_ns = table.timeout_ns
        self._backoff_ns = table.backoff_ns
        self._give_up = give_up
        self._deadlines: list[tuple[int, int]] = []
        """A heap of deadlines and rows, those that have ended since included."""
        self._waits: dict[int, int] = {}
        self._moment: Moment | None = None

    def begin(self, row: int, sent_ns: int) -> None:
        """A client waits for the answer to a request that it sent at ``sent_ns``."""
        if self._timeout_ns is None or self._timeout_ns[row] < 0:
            return
        deadline_ns = max(sent_ns + int(self._timeout_ns[row]), int(self._env.now))
        self._waits[row] = deadline_ns
        heapq.heappush(self._deadlines, (deadline_ns, row))
        if self._moment is not None and self._moment.at_ns > deadline_ns:
            self._moment.cancel()
            self._moment = None
        self._watch()

    def end(self, row: int) -> None:
        """Nobody waits for the request any more."""
        self._waits.pop(row, None)

    def backoff_ns(self, row: int, attempts: int) -> int | None:
        """How long the client waits until it sends the request once more; None when it has sent it often enough."""
        waits = None if self._backoff_ns is None else self._backoff_ns[row]
        if waits is None or attempts > len(waits) or waits[attempts - 1] < 0:
            return None
        return int(waits[attempts - 1])

    def _watch(self) -> None:
        deadlines = self._deadlines
        while deadlines and self._waits.get(deadlines[0][1]) != deadlines[0][0]:
            heapq.heappop(deadlines)
        if deadlines and self._moment is None:
            self._moment = Moment(self._env, deadlines[0][0], TIMER, self._look)

    def _look(self, event: Event) -> None:
        now = int(self._env.now)
        self._moment = None
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline_ns, row = heapq.heappop(self._deadlines)
            if self._waits.get(row) == deadline_ns:
                del self._waits[row]
                self._give_up(row)
        self._watch()
