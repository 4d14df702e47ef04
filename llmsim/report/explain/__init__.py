"""Why a deployment is as fast and as large as it is: every figure with its formula and the numbers filled in.

``explain`` puts sections together, ``text`` prints them in 80 columns. Reads specifications, the memory ledger and the
cost model; runs nothing.
"""

from llmsim.report.explain.explanation import SECTIONS, Explanation, Question, explain

__all__ = ["SECTIONS", "Explanation", "Question", "explain"]
