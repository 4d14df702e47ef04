"""Random streams: one for each purpose, so that a change in one place draws nothing else anew.

A stream is named after what it is for (``workload/chat/arrivals``, ``workload/chat/lengths/prompt``,
``router``, ``faults``). Its numbers depend on the seed and on that name alone: not on which other streams
exist, nor on the order in which they are made.
"""

from hashlib import sha256

from numpy.random import Generator, Philox


def stream(seed: int, name: str) -> Generator:
    """The random stream for the purpose ``name`` of a run with this ``seed``, at its beginning.

    The key of the counter-based generator Philox (Salmon et al., SC 2011) is the first half of the SHA-256
    of ``seed/name``.
    """
    digest = sha256(f"{seed}/{name}".encode()).digest()
    return Generator(Philox(key=int.from_bytes(digest[:16], "big")))
