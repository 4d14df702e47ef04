"""The summary in the terminal: answers first, within 80 columns."""

import io
import subprocess
import sys

import pytest
from rich.console import Console

from llmsim.report.console import print_summary
from llmsim.results.results import Results
from tests.report.runs import a_queue, the_story
from tests.results.factories import a_record, some_facts


def printed(results: Results) -> list[str]:
    stream = io.StringIO()
    print_summary(results, Console(file=stream, width=80, no_color=True))
    return stream.getvalue().splitlines()


LONG = some_facts(
    scenario="a name " * 30,
    slo={"ttft_p99_s": 1e-5, "tpot_p99_s": 1e5},
    notes=["a note " * 40],
    pools=[{"name": "chat", "model": "m" * 100, "accelerator": "h100-sxm", "num_gpu_blocks": 10**7}],
    cost_usd_per_hour=None,
)


@pytest.mark.parametrize(
    "results",
    [
        the_story(),
        Results(a_record(facts=LONG)),
        Results(a_record(requests=[], iterations=[])),
        a_queue(load=1.5),
    ],
    ids=["story", "long", "nothing", "queue"],
)
def test_no_line_is_longer_than_the_terminal(results: Results) -> None:
    assert max(len(line.rstrip()) for line in printed(results)) <= 80


def test_answers_come_before_numbers() -> None:
    text = "\n".join(printed(the_story(slo={"ttft_p99_s": 1.0})))
    places = [text.index(word) for word in ("SLO met", "TTFT p99", "replica time", "p50", "tokens/s", "GPUs")]
    assert places == sorted(places)


def test_the_table_has_the_summary_s_values() -> None:
    row = next(line for line in printed(the_story()) if line.startswith("TTFT "))
    assert row.split() == [
        "TTFT",
        "125",
        "ms",
        "125",
        "ms",
        "145",
        "ms",
        "148",
        "ms",
        "150",
        "ms",
        "150",
        "ms",
    ]


def test_markup_in_names_is_printed_as_it_is() -> None:
    assert printed(the_story(scenario="[bold]x[/bold]"))[0] == "[bold]x[/bold]"


def test_an_unknown_price_is_called_so() -> None:
    assert any("price not known" in line for line in printed(the_story(cost_usd_per_hour=None)))


def test_the_terminal_does_not_wait_for_plotly() -> None:
    code = "import sys, llmsim.report.console; sys.exit('plotly' in sys.modules or 'pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
