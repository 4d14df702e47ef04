"""How long one iteration takes and what the time is spent on: between a deployment and the engine.

``AnalyticCost`` is the physics: a roofline over the operators of a deployment. ``TableCost`` interpolates measured
step times. ``LinearCost`` is three numbers, for laws of queueing theory and recorded cases. A cost specification is
started on a deployment and gives a ``CostModel``.
"""

from typing import Annotated

from pydantic import Field

from llmsim.cost.analytic import AnalyticCost
from llmsim.cost.base import Account, Batch, Cost, CostModel, Step
from llmsim.cost.linear import LinearCost
from llmsim.cost.table import TableCost

CostSpec = Annotated[AnalyticCost | LinearCost | TableCost, Field(discriminator="kind")]
"""Every cost model a scenario file can name."""

__all__ = ["Account", "AnalyticCost", "Batch", "Cost", "CostModel", "CostSpec", "LinearCost", "Step", "TableCost"]
