"""What an answer is made of: plain values that the terminal, a page and tests read alike."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from llmsim.closed_form import Line


class Contrast(NamedTuple):
    """One quantity by closed form and by simulation."""

    key: str
    quantity: str
    unit: str
    """As of a ``Line``."""
    closed_form: float | None
    """None: there is none."""
    simulated: float | None
    why: str
    """Why the two differ, or what the quantity shows."""

    @property
    def difference(self) -> float | None:
        """Of the simulated value from the closed form, as a share; None where one of them is missing or 0."""
        if not self.closed_form or self.simulated is None:
            return None
        return self.simulated / self.closed_form - 1


class Series(NamedTuple):
    """Values to draw."""

    name: str
    x: tuple[float, ...] | tuple[str, ...]
    y: tuple[float, ...]
    kind: Literal["line", "points", "bars"] = "line"


class Picture(NamedTuple):
    """A figure as plain series; who draws it chooses the look."""

    title: str
    caption: str
    """How to read it."""
    x_label: str
    """With its unit."""
    y_label: str
    series: tuple[Series, ...]
    log_x: bool = False
    log_y: bool = False
    marks: tuple[tuple[float, str], ...] = ()
    """Places on the x axis worth a line, with what they are."""


class Command(NamedTuple):
    """A command to try next."""

    command: str
    why: str
    """What it shows."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question for one model on one accelerator."""

    short: tuple[str, ...]
    """Paragraphs: what one would say aloud."""
    arithmetic: tuple[Line, ...]
    contrasts: tuple[Contrast, ...]
    pitfalls: tuple[str, ...]
    commands: tuple[Command, ...]
    pictures: tuple[Picture, ...]
    notes: tuple[str, ...] = ()
    """How the simulations were set up."""

    def line(self, key: str) -> Line:
        """The line of that key."""
        return next(line for line in self.arithmetic if line.key == key)

    def contrast(self, key: str) -> Contrast:
        """The contrast of that key."""
        return next(each for each in self.contrasts if each.key == key)
