"""All replicas of a scenario, the router before them, and the event loop that runs them."""

from collections.abc import Callable
from dataclasses import dataclass

from simpy import Environment

from llmsim.cluster.arrivals import Arrivals
from llmsim.cluster.patience import Patience
from llmsim.cluster.router import Chooser, ReplicaView
from llmsim.engine.moment import ARRIVAL, SCHEDULE, Moment
from llmsim.engine.prompt_keys import PromptKeys
from llmsim.engine.replica import Replica
from llmsim.engine.sequence import NEVER, Sequence
from llmsim.results.recorder import Recorder
from llmsim.workload.table import RequestTable

Progress = Callable[[float, int, int], None]
"""Called now and then with the simulated time in seconds, requests done, and requests in all."""

TIMEOUT = "timeout"
"""Reason of a request's end when its client gave up on it."""
_EVENTS_BETWEEN_REPORTS = 2_000
_NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Station:
    """A replica as requests find it: how long one takes to reach its queue, and how long a request may be."""

    replica: Replica
    request_ns: int
    max_model_len: int
    keys: PromptKeys | None
    """Set when the replica caches prefixes."""


class Fleet:
    """The run itself: who is sent where, and when it is over."""

    def __init__(
        self,
        env: Environment,
        table: RequestTable,
        stations: list[Station],
        router: Chooser,
        recorder: Recorder,
    ) -> None:
        self._env = env
        self._table = table
        self._stations = stations
        self._replicas = [station.replica for station in stations]
        self._views: list[ReplicaView] = list(self._replicas)
        self._router = router
        self._recorder = recorder
        self._prompt_tokens, self._output_tokens, self._max_tokens, self._priority, self._session = (
            column.data  # a view whose items are Python's integers
            for column in (table.prompt_tokens, table.output_tokens, table.max_tokens, table.priority, table.session)
        )
        for station in stations:
            station.replica.on_end = self.ended
        self._live: dict[int, tuple[Sequence, Station]] = {}
        self._entry_ns = min(station.request_ns for station in stations)
        """Time every request takes before it is routed: the API server's work, where it is the same for all."""
        self._arrivals = Arrivals(env, table, self._send, self._entry_ns)
        self._patience = Patience(env, table, self._give_up)
        self._impatient = table.timeout_ns is not None
        self._given_up: dict[int, int] = {}
        """When the clients of requests that are still on a replica gave up on them."""
        self._attempts: dict[int, tuple[int, int]] = {}
        """Of requests given up on: when they were first sent, and how often altogether."""
        self.done = 0
        self.events = 0

    def run(self, horizon_ns: int | None, progress: Progress | None) -> None:
        """Process events up to the horizon, those at the horizon included, or until none is left."""
        peek, step = self._env.peek, self._env.step
        last = _NEVER if horizon_ns is None else horizon_ns + 1
        if horizon_ns is not None:
            Moment(self._env, horizon_ns + 1, SCHEDULE, _nothing)  # no replica looks beyond it
        while peek() < last:
            step()
            self.events += 1
            if progress is not None and self.events % _EVENTS_BETWEEN_REPORTS == 0:
                progress(self._env.now / 1e9, self.done, len(self._table))
        self._close(horizon_ns)

    @property
    def leaped_iterations(self) -> int:
        """Iterations that needed no event of their own."""
        return sum(replica.leaped_iterations for replica in self._replicas)

    def ended(self, sequence: Sequence, outcome: str, reason: str, now_ns: int) -> None:
        """A replica has let go of a request: it has ended, or it will be sent again."""
        row = sequence.row
        station = self._live.pop(row)[1]
        if self._impatient:
            self._patience.end(row)
        if station.keys is not None:
            station.keys.forget(row)
        # An abort happens among the plans of its instant, after the arrivals: what follows from it comes later.
        now_ns += outcome == "aborted"
        if row in self._given_up:
            # Even if its last token came with the iteration that was under way.
            outcome, reason = "aborted", TIMEOUT
            if self._send_again(sequence, now_ns):
                return
        self.done += 1
        self._record(sequence, station, outcome, reason)
        self._arrivals.ended(row, now_ns)

    def _send_again(self, sequence: Sequence, now_ns: int) -> bool:
        """Whether a client that has given up sends its request once more; if so it will."""
        row, given_up_ns = sequence.row, self._given_up.pop(sequence.row)
        self._attempts.setdefault(row, (sequence.arrival_ns, 1))
        backoff_ns = self._patience.backoff_ns(row, self._attempts[row][1])
        if backoff_ns is None:
            return False
        self._arrivals.send_at(row, max(given_up_ns + backoff_ns, now_ns))
        return True

    def _give_up(self, row: int) -> None:
        """A client disconnects: its server lets go of the request when the iteration under way is over."""
        sequence, station = self._live[row]
        self._given_up[row] = int(self._env.now)
        station.replica.abort(sequence, TIMEOUT)

    def _send(self, row: int, now_ns: int) -> None:
        """Choose a replica for a request and send it there; a prompt that is too long comes back at once."""
        sent_ns = now_ns - self._entry_ns
        if row in self._attempts:
            first_ns, attempts = self._attempts[row]
            self._attempts[row] = first_ns, attempts + 1
        station = self._stations[self._router.choose(self._session[row], self._views)]
        if self._prompt_tokens[row] >= station.max_model_len:
            self.done += 1
            self._never_served(row, sent_ns, "rejected", "prompt >= max_model_len")
            self._arrivals.ended(row, now_ns)
            return
        sequence = self._sequence(row, sent_ns, station)
        self._live[row] = sequence, station
        station.replica.outstanding += 1
        if station.request_ns > self._entry_ns:
            self._deliver_later(sequence, station)
        else:
            self._deliver(sequence, station, now_ns)

    def _deliver(self, sequence: Sequence, station: Station, now_ns: int) -> None:
        station.replica.deliver(sequence, now_ns)
        if self._impatient:
            self._patience.begin(sequence.row, sequence.arrival_ns)

    def _deliver_later(self, sequence: Sequence, station: Station) -> None:
        def deliver(moment: Moment) -> None:
            self._deliver(sequence, station, moment.at_ns)

        Moment(self._env, sequence.arrival_ns + station.request_ns, ARRIVAL, deliver)

    def _sequence(self, row: int, sent_ns: int, station: Station) -> Sequence:
        prompt, output, max_tokens = self._prompt_tokens[row], self._output_tokens[row], self._max_tokens[row]
        room = station.max_model_len - prompt
        limit = room if max_tokens < 0 or max_tokens > room else max_tokens
        stops = output <= limit and output != max_tokens
        target = output if output < limit else limit
        keys = station.keys
        return Sequence(
            row,
            prompt,
            prompt + limit,
            target,
            stops,
            sent_ns,
            self._priority[row],
            keys.shared_tokens(row) if keys else 0,
            tuple(keys.outputs_named(row)) if keys else (),
        )

    def _close(self, horizon_ns: int | None) -> None:
        """Every request that has not ended is in flight at the horizon, or can never go on."""
        if horizon_ns is None:
            outcome, reason, unsent = "aborted", "stuck", "predecessor stuck"
        else:
            outcome, reason, unsent = "in_flight", "horizon", "not sent"
            for replica in self._replicas:
                replica.stop(horizon_ns)
        for sequence, station in self._live.values():
            station.replica.on_end = _nobody_waits
            station.replica.state.settle(sequence)
            station.replica.leave(sequence, outcome, reason, NEVER)
            self._record(sequence, station, outcome, reason)
        unsent_ns = self._arrivals.unsent()
        for row in range(len(self._table)):
            if not self._recorder.has_ended(row):
                due_ns = unsent_ns.get(row)
                resent = row in self._attempts
                if resent or (due_ns is not None and horizon_ns is not None and due_ns <= horizon_ns):
                    self._never_served(row, NEVER if due_ns is None else due_ns, outcome, reason)
                else:
                    self._never_served(row, NEVER, outcome, unsent)

    def _record(self, sequence: Sequence, station: Station, outcome: str, reason: str) -> None:
        """Record the end of a request that was on a replica."""
        sent_ns, attempts = self._attempts.pop(sequence.row, (sequence.arrival_ns, 1))
        values = (
            station.replica.number,
            sent_ns,
            sequence.queued_ns,
            sequence.first_scheduled_ns,
            sequence.first_token_ns,
            sequence.finish_ns if outcome == "finished" else NEVER,
            sequence.emitted,
            sequence.cached_tokens,
            sequence.preemptions,
            sequence.recomputed_tokens,
            sequence.max_itl_ns,
            attempts,
        )
        self._recorder.request(sequence.row, values, outcome, reason)

    def _never_served(self, row: int, sent_ns: int, outcome: str, reason: str) -> None:
        """Record the end of a request that is on no replica."""
        sent_ns, attempts = self._attempts.pop(row, (sent_ns, int(sent_ns >= 0)))
        self._recorder.request(row, (NEVER, sent_ns, *(NEVER,) * 4, 0, 0, 0, 0, NEVER, attempts), outcome, reason)


def _nobody_waits(sequence: Sequence, outcome: str, reason: str, now_ns: int) -> None:
    """The run is over."""


def _nothing(moment: Moment) -> None:
    """Only to be there."""
