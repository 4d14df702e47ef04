"""Workloads made of clients: each has its own rate, lengths, prompts and conversations.

Each client draws from random streams of its own name, so that changing one leaves the requests of the others
as they were.
"""

from typing import Literal, NamedTuple, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from llmsim.errors import ScenarioError
from llmsim.specification import specification
from llmsim.units import NS_PER_S
from llmsim.workload.arrivals import STEADY, Arrivals, Floats, Poisson, RateProfile, arrivals_until_s
from llmsim.workload.lengths import Fixed, Lengths
from llmsim.workload.random_streams import stream
from llmsim.workload.table import Ints, RequestTable, Segments


class Sessions(NamedTuple):
    """Conversations of one client; arrays of shape ``(sessions,)``."""

    start_s: Floats
    turns: Ints
    follows: NDArray[np.bool_]
    """Whether it begins only after the session before it has ended, both being the same user's."""


@specification
class Client:
    """A source of requests: an application, a team, a kind of user.

    With ``rate_per_s`` it is an open loop: sessions begin whether or not earlier ones are served. With
    ``users`` it is a closed loop: so many users begin at time 0, and each sends its next request when the
    last is answered.
    """

    name: str = Field(min_length=1)
    rate_per_s: PositiveFloat | None = None
    """Mean rate at which sessions begin, which is that of requests while sessions have one turn."""
    users: PositiveInt | None = None
    requests_per_user: PositiveInt | None = None
    """How many requests each of the ``users`` sends, one session after another."""
    arrivals: Arrivals = Poisson()
    rate_profile: RateProfile = STEADY
    prompt_tokens: Lengths
    """What is new in each turn; the shared prefix and the conversation so far come before it."""
    output_tokens: Lengths
    max_tokens: PositiveInt | None = None
    """Limit on output tokens that requests carry; None: none."""
    priority: int = 0
    """Smaller is more important."""
    shared_prefix_tokens: NonNegativeInt = 0
    """Length of a system prompt that begins every prompt, on top of ``prompt_tokens``."""
    shared_prefixes: PositiveInt = 1
    """How many different such prompts there are; each session has one of them, all equally likely."""
    turns: Lengths = Fixed(tokens=1)
    """Requests of a session. The prompt of each holds the session's earlier prompts and answers."""
    think_s: NonNegativeFloat = 0.0
    """Mean time between an answer and the request that follows it, exponentially distributed."""

    @model_validator(mode="after")
    def _one_loop(self) -> Self:
        if (self.rate_per_s is None) == (self.users is None):
            raise ValueError("give either rate_per_s (an open loop) or users (a closed loop)")
        if (self.users is None) != (self.requests_per_user is None):
            raise ValueError("users and requests_per_user (a closed loop) go together")
        return self

    def sessions(self, seed: int, end_s: float) -> Sessions:
        """The sessions that begin before ``end_s``, in order; of a closed loop all, user by user."""
        rng = self._stream(seed, "turns")
        if self.users and self.requests_per_user:
            return _sessions_of_users(self.turns, self.users, self.requests_per_user, rng)
        arrivals_rng, steady_end_s = self._stream(seed, "arrivals"), self.rate_profile.integral(end_s)
        steady_s = arrivals_until_s(self.arrivals, self.rate_per_s or 0.0, steady_end_s, arrivals_rng)
        count = len(steady_s)
        return Sessions(self.rate_profile.warp(steady_s), self.turns.draw(count, rng), np.zeros(count, np.bool_))

    def requests(self, seed: int, sessions: Sessions) -> RequestTable:
        """The requests of these sessions; each is linked by ``after`` to the one it waits for."""
        turns = sessions.turns
        count = int(turns.sum())
        row = np.arange(count)
        session = np.repeat(np.arange(len(turns)), turns)
        first = np.repeat(np.cumsum(turns) - turns, turns)
        waits = (row > first) | sessions.follows[session]
        texts = self.prompt_tokens.draw(count, self._stream(seed, "lengths/prompt"))
        outputs = self.output_tokens.draw(count, self._stream(seed, "lengths/output"))
        answers = outputs if self.max_tokens is None else np.minimum(outputs, self.max_tokens)
        history = _sum_since(first, texts + answers)
        prefixes = self._stream(seed, "prefixes").integers(self.shared_prefixes, size=len(turns))
        think_s = self._stream(seed, "think").standard_exponential(count) * self.think_s
        table = RequestTable.build(
            arrival_s=sessions.start_s[session],
            prompt_tokens=self.shared_prefix_tokens + history + texts,
            output_tokens=outputs,
            max_tokens=-1 if self.max_tokens is None else self.max_tokens,
            priority=self.priority,
            session=np.where(turns[session] > 1, session, -1),
            after=np.where(waits, row - 1, -1),
            think_ns=np.where(waits, np.rint(think_s * NS_PER_S), 0),
            segments=self._segments(first, texts, answers, prefixes[session]),
            client_names=(self.name,),
        )
        if not sessions.follows.any():
            return table
        in_chain = row - np.maximum.accumulate(np.where(waits, 0, row))
        return table.take(np.argsort(in_chain, kind="stable"))

    def _segments(self, first: Ints, texts: Ints, answers: Ints, prefixes: Ints) -> Segments | None:
        """Prompts as segments: prefix, then text and answer of each row from ``first`` on, then the own text.

        None when no two prompts have a token in common.
        """
        row = np.arange(len(first))
        prefix = int(self.shared_prefix_tokens > 0)
        if not prefix and np.array_equal(first, row):
            return None
        counts = prefix + 2 * (row - first) + 1
        offsets = np.concatenate(([0], np.cumsum(counts)))
        place = np.arange(offsets[-1]) - np.repeat(offsets[:-1] + prefix, counts)
        source = np.repeat(first, counts) + np.maximum(place, 0) // 2
        kinds = [place < 0, place % 2 == 1]
        streams = np.select(kinds, [np.repeat(prefixes, counts), -1 - source], self.shared_prefixes + first[source])
        starts = np.select(kinds, [0, 0], _sum_since(first, texts)[source])
        tokens = np.select(kinds, [self.shared_prefix_tokens, answers[source]], texts[source])
        return offsets, streams, starts, tokens

    def _stream(self, seed: int, purpose: str) -> Generator:
        return stream(seed, f"workload/{self.name}/{purpose}")


def _sessions_of_users(turns: Lengths, users: int, requests: int, rng: Generator) -> Sessions:
    """Sessions of a closed loop, user by user: as many as make ``requests`` turns, the last one cut there."""
    drawn = turns.draw(users * requests, rng).reshape(users, requests)
    before = np.cumsum(drawn, axis=1) - drawn
    counts = np.minimum(drawn, requests - before)
    needed = counts > 0
    follows = np.broadcast_to(np.arange(requests) > 0, counts.shape)[needed]
    return Sessions(np.zeros(len(follows)), counts[needed], follows)


def _sum_since(first: Ints, values: Ints) -> Ints:
    """For each row the sum of ``values`` from row ``first`` to the row before."""
    before = np.cumsum(values) - values
    return before - before[first]


@specification
class ClientsWorkload:
    """A workload of several clients, given by laws."""

    kind: Literal["clients"] = "clients"
    clients: tuple[Client, ...]
    """At least one, each with a name of its own."""
    requests: PositiveInt | None = None
    """The first so many requests of all clients together; all turns of a session, and all requests of a
    closed loop, count from where it begins."""
    duration_s: PositiveFloat | None = None
    """The sessions that begin in this time."""

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if not self.clients:
            raise ValueError("clients is empty; needs at least one")
        names = [client.name for client in self.clients]
        if len(set(names)) < len(names):
            raise ValueError(f"clients are named {', '.join(names)}; each needs a name of its own")
        endless = any(client.rate_per_s is not None for client in self.clients)
        if endless and self.requests is None and self.duration_s is None:
            raise ValueError("needs requests or duration_s: clients with rate_per_s never end")
        return self

    def generate(self, seed: int) -> RequestTable:
        """The requests, in order of arrival. Raises ScenarioError when there is none."""
        pairs = zip(self.clients, self._sessions(seed), strict=True)
        table = RequestTable.merge([client.requests(seed, sessions) for client, sessions in pairs])
        if not len(table):
            raise ScenarioError(f"workload: no request arrives within duration_s = {self.duration_s}")
        if self.requests is None or len(table) <= self.requests:
            return table
        return table.take(np.arange(self.requests))

    def _sessions(self, seed: int) -> list[Sessions]:
        """Each client's sessions: of those before duration_s the ones that the first ``requests`` are of."""
        rate_per_s = sum(client.rate_per_s or 0.0 for client in self.clients)
        limit_s = self.duration_s or np.inf
        if self.requests is None or not rate_per_s:
            return [client.sessions(seed, limit_s) for client in self.clients]
        end_s = (1.1 * self.requests + 1) / rate_per_s
        while True:
            found = [client.sessions(seed, min(end_s, limit_s)) for client in self.clients]
            starts_s = np.concatenate([sessions.start_s for sessions in found])
            order = np.argsort(starts_s, kind="stable")
            reached = np.cumsum(np.concatenate([sessions.turns for sessions in found])[order])
            if reached.max(initial=0) >= self.requests:
                last_s = starts_s[order[np.searchsorted(reached, self.requests)]]
                return [Sessions(*(column[each.start_s <= last_s] for column in each)) for each in found]
            if end_s >= limit_s:
                return found
            end_s *= 2
