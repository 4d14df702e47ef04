"""The two ways a call can fail: the user's fault and ours.

Both carry one message string, because SimPy re-creates an exception inside a process as
``type(error)(*error.args)``.
"""


class ScenarioError(ValueError):
    """Something the user gave is wrong: the message names the file, the key, the value and what is allowed.

    A message may have several lines, one for each fault.
    """


class SimulationError(RuntimeError):
    """An invariant of the simulation broke: the message names the time, the replica and the request."""
