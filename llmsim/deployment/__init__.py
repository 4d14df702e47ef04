"""A model laid on accelerators: ``Deployment``, the matrices its ranks hold, and the KV pool its memory
leaves.

Between the facts (``model``, ``hardware``) and those who use them: the scheduler takes the size of its KV
pool from ``Deployment.ledger``, the cost model takes the matrices of each pipeline stage from ``layout``.
"""

from llmsim.deployment.layout import Matrix, Stage
from llmsim.deployment.memory import MemoryLedger
from llmsim.deployment.overheads import batch_defaults
from llmsim.deployment.specification import Deployment

__all__ = ["Deployment", "Matrix", "MemoryLedger", "Stage", "batch_defaults"]
