"""Workloads: specifications that generate request tables, from laws, a trace's statistics, or a trace."""

from typing import Annotated

from pydantic import Field

from llmsim.workload.clients import Client, ClientsWorkload
from llmsim.workload.preset import PresetWorkload
from llmsim.workload.servegen import ServeGenWorkload
from llmsim.workload.table import RequestTable, Workload
from llmsim.workload.trace import TraceWorkload

WorkloadSpec = Annotated[
    PresetWorkload | TraceWorkload | ClientsWorkload | ServeGenWorkload, Field(discriminator="kind")
]
"""What ``[workload]`` of a scenario can be: each has ``generate(seed) -> RequestTable``."""

__all__ = [
    "Client",
    "ClientsWorkload",
    "PresetWorkload",
    "RequestTable",
    "ServeGenWorkload",
    "TraceWorkload",
    "Workload",
    "WorkloadSpec",
]
