"""Workload values with defaults, so that a test states only what it is about."""

from typing import Any

from llmsim.workload import Client, ClientsWorkload, RequestTable
from llmsim.workload.lengths import Fixed, Lognormal


def a_client(name: str = "chat", **fields: Any) -> Client:
    """A client of an open loop at 2 requests a second, unless ``users`` are given."""
    loop = {} if "users" in fields else {"rate_per_s": 2.0}
    lengths = {"prompt_tokens": Lognormal(mean=200.0, p99=900.0), "output_tokens": Fixed(tokens=50)}
    return Client(**{"name": name, **loop, **lengths, **fields})


def a_table(*clients: Client, seed: int = 0, requests: int | None = 500, **fields: Any) -> RequestTable:
    """The requests of some clients."""
    return ClientsWorkload(clients=clients or (a_client(),), requests=requests, **fields).generate(seed)


def prompt_of(table: RequestTable, row: int) -> list[tuple[int, int]]:
    """The prompt of a row, token by token, as (stream, index)."""
    pieces = range(table.segment_offsets[row], table.segment_offsets[row + 1])
    return [
        (int(table.segment_stream[piece]), int(table.segment_start[piece]) + index)
        for piece in pieces
        for index in range(table.segment_tokens[piece])
    ]
