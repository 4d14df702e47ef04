"""Which replica serves a request: policies without a clock.

A router is a specification with ``start(replicas, rng)``, which returns what chooses. It sees each replica only through
``ReplicaView``: what a real router could know.
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal, Protocol

from numpy.random import Generator
from pydantic import Field

from llmsim.specification import specification


class ReplicaView(Protocol):
    """What a router can know of a replica at the moment of an arrival."""

    @property
    def outstanding(self) -> int:
        """Requests sent to it that have not ended: waiting and running."""
        ...


class Chooser(Protocol):
    """Chooses the replica of one request after another."""

    def choose(self, session: int, replicas: list[ReplicaView]) -> int:
        """The index of the replica for a request of ``session`` (-1: none)."""
        ...


class Router(Protocol):
    """A routing policy. Any object with this method can be a scenario's router from Python."""

    def start(self, rng: Generator) -> Chooser:
        """The policy's state for one run; ``rng`` is its own random stream."""
        ...


@specification
class RoundRobin:
    """Each replica in turn."""

    kind: Literal["round_robin"] = "round_robin"

    def start(self, rng: Generator) -> Chooser:
        """A counter, from replica 0."""
        return _Turns()


@dataclass(slots=True)
class _Turns:
    turn: int = -1

    def choose(self, session: int, replicas: list[ReplicaView]) -> int:
        self.turn = (self.turn + 1) % len(replicas)
        return self.turn


@specification
class LeastOutstanding:
    """The replica with the fewest waiting and running requests; the first of several."""

    kind: Literal["least_outstanding"] = "least_outstanding"

    def start(self, rng: Generator) -> Chooser:
        """Has no state."""
        return _Fewest()


@dataclass(slots=True)
class _Fewest:
    def choose(self, session: int, replicas: list[ReplicaView]) -> int:
        best, fewest = 0, replicas[0].outstanding
        for index in range(1, len(replicas)):
            if (outstanding := replicas[index].outstanding) < fewest:
                best, fewest = index, outstanding
        return best


@specification
class SessionAffinity:
    """A session stays on the replica of its first request, so that its prefix is cached there.

    First requests, and requests without a session, go to the replica with the fewest outstanding requests.
    """

    kind: Literal["session_affinity"] = "session_affinity"

    def start(self, rng: Generator) -> Chooser:
        """Remembers each session's replica."""
        return _Sticky()


@dataclass(slots=True)
class _Sticky:
    home: dict[int, int] = field(default_factory=dict)
    first: _Fewest = field(default_factory=_Fewest)

    def choose(self, session: int, replicas: list[ReplicaView]) -> int:
        if session < 0:
            return self.first.choose(session, replicas)
        if session not in self.home:
            self.home[session] = self.first.choose(session, replicas)
        return self.home[session]


RouterSpec = Annotated[RoundRobin | LeastOutstanding | SessionAffinity, Field(discriminator="kind")]
