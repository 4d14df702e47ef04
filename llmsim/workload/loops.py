"""Limits of a client that are rows of the request table."""

from dataclasses import replace

import numpy as np

from llmsim.errors import ScenarioError
from llmsim.workload.table import RequestTable


def capped(table: RequestTable, max_concurrency: int) -> RequestTable:
    """The requests as a load generator with so many workers sends them: each worker every so-many-th request.

    A request is sent when its time has come and its worker's last one has ended; with more load than the server
    takes, the open loop so becomes a closed one. Raises ScenarioError when requests already wait for others.
    """
    if np.any(table.after >= 0):
        raise ScenarioError("max_concurrency: requests of sessions and closed loops already wait for others")
    return replace(table, after=np.maximum(np.arange(len(table)) - max_concurrency, -1))
