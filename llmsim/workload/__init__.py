"""Workloads: specifications that generate request tables, from laws, from statistics of a trace, or from a trace."""

from typing import Annotated

from pydantic import Field

from llmsim.workload.clients import Client, ClientsWorkload
from llmsim.workload.preset import PresetWorkload
from llmsim.workload.table import RequestTable
from llmsim.workload.trace import TraceWorkload

WorkloadSpec = Annotated[PresetWorkload | TraceWorkload | ClientsWorkload, Field(discriminator="kind")]
"""What a scenario's ``[workload]`` can be: each has ``generate(seed) -> RequestTable``."""

__all__ = ["Client", "ClientsWorkload", "PresetWorkload", "RequestTable", "TraceWorkload", "WorkloadSpec"]
