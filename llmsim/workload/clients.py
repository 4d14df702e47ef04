"""Workloads made of clients: each has its own rate, lengths, prompts and conversations.

Each client draws from random streams of its own name, so that changing one leaves the requests of the others as
they were.
"""

from typing import Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from llmsim.errors import ScenarioError
from llmsim.specification import specification
from llmsim.units import NS_PER_S
from llmsim.workload.arrivals import STEADY, Arrivals, Floats, Poisson, RateProfile, arrivals_until_s
from llmsim.workload.lengths import Fixed, Lengths
from llmsim.workload.random_streams import stream
from llmsim.workload.table import Ints, RequestTable


class Sessions(NamedTuple):
    """Conversations of one client, in order of their start; arrays of shape ``(sessions,)``."""

    start_s: Floats
    turns: Ints


@specification
class Client:
    """A source of requests: an application, a team, a kind of user.

    With ``rate_per_s`` it is an open loop: sessions come whether or not earlier ones are served. With ``users`` it
    is a closed loop: so many sessions begin at time 0, and each sends its next request when the last is answered.
    A session has one turn unless ``turns`` says otherwise.
    """

    name: str = Field(min_length=1)
    rate_per_s: PositiveFloat | None = None
    """Mean rate of sessions, which is that of requests when sessions have one turn."""
    users: PositiveInt | None = None
    arrivals: Arrivals = Poisson()
    rate_profile: RateProfile = STEADY
    prompt_tokens: Lengths
    """What the user writes in one turn; the shared prefix and the conversation so far come before it."""
    output_tokens: Lengths
    max_tokens: PositiveInt | None = None
    """Limit on output tokens the client sends along; None: none."""
    priority: int = 0
    """Smaller is more important."""
    shared_prefix_tokens: NonNegativeInt = 0
    """Length of a system prompt that begins every prompt, on top of ``prompt_tokens``."""
    shared_prefixes: PositiveInt = 1
    """How many different such prompts there are; each session has one of them, drawn evenly."""
    turns: Lengths = Fixed(tokens=1)
    """Requests of a session, one after the other."""
    think_s: NonNegativeFloat = 0.0
    """Mean time between an answer and the next turn, exponentially distributed."""
    keep_history: bool = True
    """Whether a turn's prompt holds the earlier turns with their answers, or only its own text."""

    @model_validator(mode="after")
    def _one_loop(self) -> Self:
        if (self.rate_per_s is None) == (self.users is None):
            raise ValueError(f"client '{self.name}' needs either rate_per_s (open loop) or users (closed loop)")
        return self

    def sessions(self, seed: int, end_s: float) -> Sessions:
        """The sessions that begin before ``end_s``."""
        if self.rate_per_s is None:
            start_s = np.zeros(self.users or 0)
        else:
            rng = stream(seed, f"workload/{self.name}/arrivals")
            steady_end_s = self.rate_profile.integral(end_s)
            steady_s = arrivals_until_s(self.arrivals, self.rate_per_s, steady_end_s, rng)
            start_s = self.rate_profile.warp(steady_s)
        return Sessions(start_s, self.turns.draw(len(start_s), stream(seed, f"workload/{self.name}/turns")))

    def requests(self, seed: int, sessions: Sessions) -> RequestTable:
        """The requests of these sessions; turns of one session are linked by ``after``."""
        count, turns = int(sessions.turns.sum()), sessions.turns
        session = np.repeat(np.arange(len(turns)), turns)
        first = np.repeat(np.cumsum(turns) - turns, turns)
        row = np.arange(count)
        think_s = stream(seed, f"workload/{self.name}/think").standard_exponential(count) * self.think_s
        texts = self.prompt_tokens.draw(count, stream(seed, f"workload/{self.name}/lengths/prompt"))
        outputs = self.output_tokens.draw(count, stream(seed, f"workload/{self.name}/lengths/output"))
        answers = outputs if self.max_tokens is None else np.minimum(outputs, self.max_tokens)
        begin = first if self.keep_history else row
        prefixes = stream(seed, f"workload/{self.name}/prefixes").integers(self.shared_prefixes, size=len(turns))
        table = RequestTable.build(
            arrival_s=sessions.start_s[session],
            prompt_tokens=self.shared_prefix_tokens + _sum_since(begin, texts) + texts + _sum_since(begin, answers),
            output_tokens=outputs,
            max_tokens=-1 if self.max_tokens is None else self.max_tokens,
            priority=self.priority,
            session=np.where(turns[session] > 1, session, -1),
            after=np.where(row > first, row - 1, -1),
            think_ns=np.where(row > first, np.rint(think_s * NS_PER_S), 0),
            segments=self._segments(begin, texts, answers, prefixes[session]),
            client_names=(self.name,),
        )
        return table if self.users is None else table.take(np.argsort(row - first, kind="stable"))

    def _segments(self, begin: Ints, texts: Ints, answers: Ints, prefixes: Ints) -> tuple[Ints, Ints, Ints, Ints] | None:
        """The four segment arrays of prompts that hold, from row ``begin`` on, each text and its answer in turn.

        None when no two prompts have a token in common.
        """
        row = np.arange(len(begin))
        prefix = int(self.shared_prefix_tokens > 0)
        if not prefix and np.array_equal(begin, row):
            return None
        counts = prefix + 2 * (row - begin) + 1
        offsets = np.concatenate(([0], np.cumsum(counts)))
        place = np.arange(offsets[-1]) - np.repeat(offsets[:-1] + prefix, counts)
        source = np.repeat(begin, counts) + np.maximum(place, 0) // 2
        is_prefix, is_answer = place < 0, place % 2 == 1
        is_answer &= ~is_prefix
        kinds = [is_prefix, is_answer]
        text_stream = self.shared_prefixes + begin[source]
        streams = np.select(kinds, [np.repeat(prefixes, counts), -1 - source], text_stream)
        starts = np.where(is_prefix | is_answer, 0, _sum_since(begin, texts)[source])
        tokens = np.select(kinds, [self.shared_prefix_tokens, answers[source]], texts[source])
        return offsets, streams, starts, tokens


def _sum_since(begin: Ints, values: Ints) -> Ints:
    """For each row the sum of ``values`` from row ``begin`` to the row before."""
    before = np.cumsum(values) - values
    return before - before[begin]


@specification
class ClientsWorkload:
    """A workload of several clients, given by laws."""

    kind: Literal["clients"] = "clients"
    clients: tuple[Client, ...] = Field(min_length=1)
    requests: PositiveInt | None = None
    """The first so many requests of all clients together; the turns of a session count from its start."""
    duration_s: PositiveFloat | None = None
    """The sessions that begin in this time."""

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        names = [client.name for client in self.clients]
        if len(set(names)) < len(names):
            raise ValueError(f"clients are named {', '.join(names)}; each needs a name of its own")
        endless = any(client.rate_per_s is not None for client in self.clients)
        if endless and self.requests is None and self.duration_s is None:
            raise ValueError("needs requests or duration_s: clients with rate_per_s never end")
        return self

    def generate(self, seed: int) -> RequestTable:
        """The requests, in order of arrival. Raises ScenarioError when there is none."""
        sessions = self._sessions(seed)
        table = RequestTable.merge(
            [client.requests(seed, its) for client, its in zip(self.clients, sessions, strict=True)]
        )
        if not len(table):
            raise ScenarioError(f"workload: no request arrives within duration_s = {self.duration_s}")
        if self.requests is None or len(table) <= self.requests:
            return table
        return table.take(np.arange(self.requests))

    def _sessions(self, seed: int) -> list[Sessions]:
        """Each client's sessions: those before duration_s that the first ``requests`` requests need."""
        rate = sum(client.rate_per_s or 0.0 for client in self.clients)
        limit_s = self.duration_s or np.inf
        end_s = limit_s if self.requests is None or not rate else min(limit_s, 1.1 * self.requests / rate + 1 / rate)
        while True:
            found = [client.sessions(seed, end_s) for client in self.clients]
            if self.requests is None or not rate:
                return found
            starts = np.concatenate([its.start_s for its in found])
            order = np.argsort(starts, kind="stable")
            reached = np.cumsum(np.concatenate([its.turns for its in found])[order])
            if reached.max(initial=0) >= self.requests:
                last_s = starts[order[np.searchsorted(reached, self.requests)]]
                return [Sessions(*(column[its.start_s <= last_s] for column in its)) for its in found]
            if end_s >= limit_s:
                return found
            end_s = min(limit_s, 2 * end_s)
