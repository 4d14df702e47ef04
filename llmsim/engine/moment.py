"""Events at a set time, with a set place in the order of one instant.

At one instant, first iterations end, in the order of replicas; then timers fire; then requests arrive, in row order;
then replicas without a step in flight schedule, in the order of replicas. SimPy sorts events of one time by priority.
"""

from collections.abc import Callable
from typing import Any

from simpy import Environment, Event

_PLACES = 1 << 20
ITERATION_ENDS = 0
TIMER = _PLACES
ARRIVAL = 2 * _PLACES
SCHEDULE = 3 * _PLACES


class Moment(Event):
    """Calls ``callback`` at ``at_ns``. ``place`` is one of the constants above, plus the number of the replica."""

    def __init__(self, env: Environment, at_ns: int, place: int, callback: Callable[[Any], None]) -> None:
        # What Event.__init__ and Event.succeed would do, without the calls: most events are these.
        self.env = env
        self.at_ns = at_ns
        self.callbacks = [callback]
        self._ok = True
        self._value = None
        env.schedule(self, place, at_ns - env.now)  # type: ignore[arg-type]

    def cancel(self) -> None:
        """Call nobody. The event itself stays in SimPy's queue."""
        self.callbacks.clear()
