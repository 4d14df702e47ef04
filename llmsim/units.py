"""SI constants, the integer clock, and formatting for people.

Code and files carry SI base units with a suffix (``_s``, ``_bytes``, ``_flop_per_s``); inside a run time is
integer nanoseconds (``_ns``), or parts of them (``_ticks``). Milliseconds, GiB and per cent appear only in what people
look at.
"""

NS_PER_S = 1_000_000_000
TICK_BITS = 16
"""A nanosecond has 2 to the power of so many ticks: the iterations of an engine follow one another at ticks, so that
rounding them to nanoseconds does not add up."""
KIB = 2**10
MIB = 2**20
GIB = 2**30
KILO = 1e3
MEGA = 1e6
GIGA = 1e9
TERA = 1e12


def to_ns(seconds: float) -> int:
    """Seconds as integer nanoseconds, rounded half to even (as ``numpy.rint`` does)."""
    return round(seconds * NS_PER_S)


def format_duration(seconds: float) -> str:
    """A duration for people: ``0.0123`` is ``12.3 ms``, ``7380`` is ``2.05 h``."""
    magnitude = abs(seconds)
    for limit, unit, factor in (
        (1e-3, "us", 1e6),
        (1.0, "ms", 1e3),
        (120.0, "s", 1.0),
        (7200.0, "min", 1 / 60),
    ):
        if magnitude < limit:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds / 3600:.3g} h"


def format_bytes(count: float) -> str:
    """A number of bytes for people, in binary units: ``2**31`` is ``2.00 GiB``."""
    for limit, unit in ((KIB, "B"), (MIB, "KiB"), (GIB, "MiB")):
        if abs(count) < limit:
            return f"{count * KIB / limit:.3g} {unit}"
    return f"{count / GIB:,.2f} GiB"


def format_count(count: float, unit: str = "") -> str:
    """A large number for people, in decimal units: ``9.89e14`` with unit ``FLOP/s`` is ``989 TFLOP/s``."""
    for limit, prefix in ((1e3, ""), (1e6, "k"), (1e9, "M"), (1e12, "G"), (1e15, "T"), (1e18, "P")):
        if abs(count) < limit:
            return f"{count * 1e3 / limit:.3g} {prefix}{unit}".rstrip()
    return f"{count / 1e18:.3g} E{unit}"


def format_percent(share: float) -> str:
    """A share as per cent, one digit below ten: ``0.123`` is ``12 %``, ``0.0123`` is ``1.2 %``."""
    return f"{100 * share:.0f} %" if abs(share) >= 0.0995 or share == 0 else f"{100 * share:.1f} %"


def format_usd(amount: float) -> str:
    """US dollars: ``12345.6`` is ``$12,346``, ``1234.5`` is ``$1,234.50``, ``0.0123`` is ``$0.0123``."""
    return f"${amount:,.0f}" if amount >= 10_000 else f"${amount:,.2f}" if amount >= 0.1 else f"${amount:.3g}"
