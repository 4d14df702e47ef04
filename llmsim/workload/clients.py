"""Workloads made of clients: each has its own rate, lengths, prompts and conversations.

Each client draws from random streams of its own name, so that changing one leaves the requests of the others
as they were.
"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from llmsim.errors import ScenarioError
from llmsim.specification import specification
from llmsim.units import NS_PER_S
from llmsim.workload.arrivals import Arrivals, Floats, Poisson, arrivals_until_s
from llmsim.workload.lengths import Fixed, Lengths, QuantileLaw, correlated
from llmsim.workload.loops import capped
from llmsim.workload.random_streams import stream
from llmsim.workload.rates import STEADY, RateProfile
from llmsim.workload.table import Ints, RequestTable, Segments
from llmsim.workload.trace_rows import TraceRows

_LONGEST_BACKOFF = 16
"""Times the first."""


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
    """Its name in results; its random streams are called after it."""
    rate_per_s: PositiveFloat | None = None
    """Mean rate at which sessions begin, which is that of requests while sessions have one turn."""
    share: PositiveFloat | None = None
    """Instead of a rate, its part of the workload's ``rate_per_s``, relative to the other clients' shares."""
    users: PositiveInt | None = None
    """Instead of a rate, so many users of a closed loop, each with one request in flight."""
    requests_per_user: PositiveInt | None = None
    """How many requests each of the ``users`` sends, one session after another."""
    arrivals: Arrivals = Poisson()
    """Law of the gaps between its sessions."""
    rate_profile: RateProfile = STEADY
    """How its rate changes with time."""
    prompt_tokens: Lengths | None = None
    """What is new in each turn; the shared prefix and the conversation so far come before it."""
    output_tokens: Lengths | None = None
    """The answer."""
    length_correlation: Annotated[float, Field(gt=-1, lt=1)] = 0.0
    """Rank correlation (Spearman) between prompt and output tokens."""
    lengths_of: TraceRows | None = None
    """Instead of the two laws, a trace whose rows are drawn, so that both lengths keep together."""
    first_prompt_tokens: Lengths | None = None
    """What is new in the first turn of a session, when that is something else than in those that follow: a
    task, say, before the results of tools."""
    reasoning_tokens: Lengths | None = None
    """Generated before the answer, on top of ``output_tokens``, and left out of the conversation that follows."""
    max_tokens: PositiveInt | None = None
    """Limit on output tokens that requests carry; None: none."""
    priority: int = 0
    """Smaller is more important."""
    shared_prefix_tokens: NonNegativeInt = 0
    """Length of a system prompt that begins every prompt, on top of ``prompt_tokens``."""
    shared_prefixes: PositiveInt = 1
    """How many different such prompts there are; each session has one of them."""
    shared_prefix_zipf: NonNegativeFloat = 0.0
    """How unequally they are used: the k-th as often as k to the power of minus this; 0: equally."""
    turns: Lengths = Fixed(tokens=1)
    """Requests of a session. The prompt of each holds the session's earlier prompts and answers."""
    think_s: NonNegativeFloat = 0.0
    """Mean time between an answer and the request that follows it: of a person, or of an agent's tools."""
    think_cv: NonNegativeFloat = 1.0
    """Coefficient of variation of that time, which has a gamma law: 1 is exponential, 0 constant."""
    max_concurrency: PositiveInt | None = None
    """Limit on the requests in flight of an open loop, as of a load generator with so many workers."""
    timeout_s: PositiveFloat | None = None
    """How long it waits for a whole answer before it gives up and disconnects, and the server lets go of the request;
    None: for ever."""
    retries: NonNegativeInt = 0
    """How often it sends a request again, each time it has given up."""
    retry_backoff_s: PositiveFloat = 0.5
    """How long after giving up it sends the request again. Doubles with each retry up to 16 times this, less up to a
    quarter at random, as OpenAI's Python client does (its _base_client.py, with 0.5 s and 2 retries)."""

    @model_validator(mode="after")
    def _one_loop(self) -> Self:
        if sum(value is not None for value in (self.rate_per_s, self.share, self.users)) != 1:
            raise ValueError("give either rate_per_s or share (an open loop) or users (a closed loop)")
        if (self.users is None) != (self.requests_per_user is None):
            raise ValueError("users and requests_per_user (a closed loop) go together")
        if self.max_concurrency is not None and (self.users is not None or self.turns != Fixed(tokens=1)):
            raise ValueError("max_concurrency is for an open loop of sessions of one turn")
        if self.retries and self.timeout_s is None:
            raise ValueError("retries follow a timeout_s, which is missing")
        return self

    @model_validator(mode="after")
    def _lengths_once(self) -> Self:
        laws = (self.prompt_tokens, self.output_tokens)
        if (self.lengths_of is None) == (None in laws) and laws != (None, None):
            raise ValueError("give both prompt_tokens and output_tokens, or lengths_of")
        if self.lengths_of is None and laws == (None, None):
            raise ValueError("prompt_tokens and output_tokens are missing")
        if self.length_correlation and not all(isinstance(law, QuantileLaw) for law in laws):
            raise ValueError('length_correlation needs laws of prompt_tokens and output_tokens with a method "at"')
        return self

    def located(self, folder: Path) -> Self:
        """The same with its paths, which start at ``folder``, as seen from the working directory.

        Raises ValueError when there is no such file.
        """
        keys = ("arrivals", "rate_profile", "lengths_of")
        found = {key: value.located(folder) for key in keys if hasattr(value := getattr(self, key), "located")}
        return replace(self, **found)

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
        texts, answers = self._lengths(seed, row == first)
        outputs, answers, answer_start = self._thoughtful(seed, answers)
        history = _sum_since(first, texts + answers)
        table = RequestTable.build(
            arrival_s=sessions.start_s[session],
            prompt_tokens=self.shared_prefix_tokens + history + texts,
            output_tokens=outputs,
            max_tokens=-1 if self.max_tokens is None else self.max_tokens,
            priority=self.priority,
            session=np.where(turns[session] > 1, session, -1),
            after=np.where(waits, row - 1, -1),
            think_ns=np.where(waits, np.rint(self._think_s(seed, count) * NS_PER_S), 0),
            segments=self._segments(first, texts, answers, answer_start, self._prefixes(seed, len(turns))[session]),
            client_names=(self.name,),
            timeout_ns=None if self.timeout_s is None else max(round(self.timeout_s * NS_PER_S), 1),
            backoff_ns=self._backoff_ns(seed, count),
        )
        if self.max_concurrency is not None:
            return capped(table, self.max_concurrency)
        if not sessions.follows.any():
            return table
        in_chain = row - np.maximum.accumulate(np.where(waits, 0, row))
        return table.take(np.argsort(in_chain, kind="stable"))

    def _lengths(self, seed: int, begins: NDArray[np.bool_]) -> tuple[Ints, Ints]:
        """New prompt tokens and answer tokens of each turn; ``begins`` marks the first ones of sessions."""
        count = len(begins)
        if self.lengths_of is not None:
            texts, answers = self.lengths_of.draw(count, self._stream(seed, "lengths"))
        else:
            texts, answers = self._drawn(seed, count)
        if self.first_prompt_tokens is not None:
            texts = texts.copy()
            rng = self._stream(seed, "lengths/first_prompt")
            texts[begins] = self.first_prompt_tokens.draw(int(begins.sum()), rng)
        return texts, answers

    def _drawn(self, seed: int, count: int) -> tuple[Ints, Ints]:
        """Prompt and answer tokens of the two laws."""
        prompts, outputs = self.prompt_tokens, self.output_tokens
        if self.length_correlation and isinstance(prompts, QuantileLaw) and isinstance(outputs, QuantileLaw):
            return correlated(count, prompts, outputs, self.length_correlation, self._stream(seed, "lengths"))
        if prompts is None or outputs is None:
            raise AssertionError("a client without laws of lengths has a trace")
        prompts_rng, outputs_rng = self._stream(seed, "lengths/prompt"), self._stream(seed, "lengths/output")
        return prompts.draw(count, prompts_rng), outputs.draw(count, outputs_rng)

    def _thoughtful(self, seed: int, answers: Ints) -> tuple[Ints, Ints, Ints]:
        """True outputs, and of each what the conversation keeps: how many tokens, and where in it they begin."""
        outputs = answers
        if self.reasoning_tokens is not None:
            outputs = answers + self.reasoning_tokens.draw(len(answers), self._stream(seed, "reasoning"))
        emitted = outputs if self.max_tokens is None else np.minimum(outputs, self.max_tokens)
        # At least one token is kept, even when the limit cut the thinking short.
        kept = np.maximum(emitted - (outputs - answers), 1)
        return outputs, kept, emitted - kept

    def _prefixes(self, seed: int, count: int) -> Ints:
        """Which shared prefix each session has."""
        rng = self._stream(seed, "prefixes")
        if not self.shared_prefix_zipf:
            return rng.integers(self.shared_prefixes, size=count)
        weights = np.arange(1, self.shared_prefixes + 1) ** -self.shared_prefix_zipf
        return np.searchsorted(np.cumsum(weights) / weights.sum(), rng.random(count), side="right")

    def _think_s(self, seed: int, count: int) -> Floats:
        rng = self._stream(seed, "think")
        if self.think_cv == 1:
            return rng.standard_exponential(count) * self.think_s
        if not self.think_cv:
            return np.full(count, self.think_s)
        shape = self.think_cv**-2
        return rng.standard_gamma(shape, count) * (self.think_s / shape)

    def _backoff_ns(self, seed: int, count: int) -> Ints | None:
        """Waits before each retry, shape ``(count, retries)``."""
        if not self.retries:
            return None
        longest_s = self.retry_backoff_s * np.minimum(2.0 ** np.arange(self.retries), _LONGEST_BACKOFF)
        shares = 1 - 0.25 * self._stream(seed, "retries").random((count, self.retries))
        backoff_ns: Ints = np.rint(shares * longest_s * NS_PER_S).astype(np.int64)
        return backoff_ns

    def _segments(self, first: Ints, texts: Ints, answers: Ints, answer_start: Ints, prefixes: Ints) -> Segments | None:
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
        starts = np.select(kinds, [0, answer_start[source]], _sum_since(first, texts)[source])
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
    rate_per_s: PositiveFloat | None = None
    """Rate at which sessions of the clients with a ``share`` begin, all together."""
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
        shared = [client.name for client in self.clients if client.share is not None]
        if (self.rate_per_s is None) != (not shared):
            raise ValueError(
                f"share of {', '.join(shared)} is a part of the workload's rate_per_s, which is missing"
                if shared
                else "rate_per_s is for clients with a share; no client has one"
            )
        endless = any(client.users is None for client in self.clients)
        if endless and self.requests is None and self.duration_s is None:
            raise ValueError("needs requests or duration_s: clients with a rate never end")
        return self

    def generate(self, seed: int) -> RequestTable:
        """The requests, in order of arrival. Raises ScenarioError when there is none."""
        clients = self._rated()
        pairs = zip(clients, self._sessions(clients, seed), strict=True)
        table = RequestTable.merge([client.requests(seed, sessions) for client, sessions in pairs])
        if not len(table):
            raise ScenarioError(f"workload: no request arrives within duration_s = {self.duration_s}")
        if self.requests is None or len(table) <= self.requests:
            return table
        return table.take(np.arange(self.requests))

    def located(self, folder: Path) -> Self:
        """The same with its clients' paths as seen from the working directory. Raises ValueError as theirs."""
        return replace(self, clients=tuple(client.located(folder) for client in self.clients))

    def _rated(self) -> list[Client]:
        """The clients, shares turned into rates."""
        shares = sum(client.share or 0.0 for client in self.clients)
        return [
            replace(client, share=None, rate_per_s=(self.rate_per_s or 0.0) * client.share / shares)
            if client.share is not None
            else client
            for client in self.clients
        ]

    def _sessions(self, clients: list[Client], seed: int) -> list[Sessions]:
        """Each client's sessions: of those before duration_s the ones that the first ``requests`` are of."""
        rate_per_s = sum(client.rate_per_s or 0.0 for client in clients)
        limit_s = self.duration_s or np.inf
        if self.requests is None or not rate_per_s:
            return [client.sessions(seed, limit_s) for client in clients]
        end_s = (1.1 * self.requests + 1) / rate_per_s
        while True:
            found = [client.sessions(seed, min(end_s, limit_s)) for client in clients]
            starts_s = np.concatenate([sessions.start_s for sessions in found])
            order = np.argsort(starts_s, kind="stable")
            reached = np.cumsum(np.concatenate([sessions.turns for sessions in found])[order])
            if reached.max(initial=0) >= self.requests:
                last_s = starts_s[order[np.searchsorted(reached, self.requests)]]
                return [Sessions(*(column[each.start_s <= last_s] for column in each)) for each in found]
            if end_s >= limit_s:
                return found
            end_s *= 2
