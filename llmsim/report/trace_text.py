"""What a workload is like, as rows of text for the terminal and the HTML page."""

from textwrap import fill

from llmsim.report.tables import UNKNOWN, Rows
from llmsim.units import format_duration
from llmsim.workload.describe import SHARES, Description, Recorded, describe
from llmsim.workload.preset import PresetWorkload, preset

MOST_CLIENTS = 5
DRAWN = 20_000
"""Requests of a workload of the catalogue that are looked at."""
COLUMNS = ("mean", *SHARES)
"""Columns of the table of lengths."""


def arrival_rows(description: Description) -> Rows:
    """How many requests there are and how they arrive."""
    rows = [("Requests", f"{description.requests:,}")]
    if (arrivals := description.arrivals) is None:
        return [*rows, ("Arrivals", "the file has no times of arrival")]
    waiting = "" if arrivals.requests == description.requests else ", of requests that wait for no other"
    dispersion = (UNKNOWN if value is None else f"{value:.3g}" for value in (arrivals.idc_1s, arrivals.idc_60s))
    return [
        *rows,
        ("Span", format_duration(arrivals.span_s)),
        ("Rate", f"{arrivals.mean_rate_per_s:.4g}/s on average{waiting}"),
        ("Peak", f"{arrivals.peak_second_per_s:.4g} in a second, {arrivals.peak_minute_per_s:.4g}/s in a minute"),
        ("Burstiness", f"CV of gaps {arrivals.gap_cv:.3g}; variance/mean of counts a second {next(dispersion)}, a "
         f"minute {next(dispersion)} (Poisson: 1)"),
    ]  # fmt: skip


def content_rows(description: Description) -> Rows:
    """What the requests have to do with each other."""
    correlation = description.rank_correlation
    rows = [
        ("Prompt and output", "one never changes" if correlation is None else f"rank correlation {correlation:+.2f}"),
        ("Shared prefixes", f"{description.prefix_hit_ceiling:.1%} of prompt tokens, with an endless cache"),
    ]
    if description.sessions:
        sessions = f"{description.sessions:,} of {description.session_requests_mean:.3g} requests on average"
        rows.append(("Sessions", f"{sessions}; {description.chained_share:.0%} of requests wait for another"))
    if len(description.clients) > 1:
        largest = sorted(description.clients.items(), key=lambda item: -item[1])[:MOST_CLIENTS]
        named = ", ".join(f"{name} {count / description.requests:.0%}" for name, count in largest)
        rows.append(
            ("Clients", f"{len(description.clients)}: {named}" + (" ..." * (len(description.clients) > MOST_CLIENTS)))
        )
    return rows


def length_rows(description: Description) -> list[tuple[str, list[str]]]:
    """A row for prompts and one for outputs: the text of each of ``COLUMNS``."""
    return [
        (name, [f"{facts[column]:,.0f}" for column in COLUMNS])
        for name, facts in (("Prompt tokens", description.prompt_tokens), ("Output tokens", description.output_tokens))
    ]


def preset_text(name: str) -> str:
    """A workload of the catalogue: where it comes from, and what it looks like when drawn.

    Raises ScenarioError when there is none of that name.
    """
    found = preset(name)
    size = min(found.requests, DRAWN)
    drawn = Recorded(PresetWorkload(name=name, requests=size).generate(0), timed=True, notes=[])
    about = [found.description, "", f"Licence: {found.licence}. " + " ".join(found.source.split())]
    title = f"{size:,} requests drawn with seed 0"
    return "\n".join([found.name, "", *(fill(text, 80) for text in about), "", trace_text(title, describe(drawn))])


def trace_text(name: str, description: Description) -> str:
    """The whole description as text of at most 100 columns."""
    lines = [name, *_pairs(arrival_rows(description)), "", f"{'':<14}" + "".join(f"{each:>8}" for each in COLUMNS)]
    lines += [f"{title:<14}" + "".join(f"{cell:>8}" for cell in cells) for title, cells in length_rows(description)]
    lines += ["", *_pairs(content_rows(description))]
    if description.oddities:
        lines += ["", "Odd:", *(f"- {oddity}" for oddity in description.oddities)]
    return "\n".join(lines)


def _pairs(rows: Rows) -> list[str]:
    return [f"{name:<18} {text}" for name, text in rows]
