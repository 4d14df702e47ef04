"""The report is one file that needs nothing else, says the verdict, and shows users' text as text."""

import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest

from llmsim.report.html import FIGURES, report_page, write_report
from llmsim.results.results import Results
from tests.report.runs import a_queue, the_story
from tests.results.factories import a_record, some_facts

VILLAIN = '</script><script>alert("1")</script><b>&'


class Page(HTMLParser):
    """What a browser would make of the page: elements with attributes, text, scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            getattr(self, f"{tag}s").append("")

    def handle_data(self, data: str) -> None:
        tag = self.elements[-1][0] if self.elements else ""
        if tag in ("script", "style") and self.rawdata:
            getattr(self, f"{tag}s")[-1] += data
        self.text += data if tag not in ("script", "style") else ""


@cache
def the_page() -> Page:
    """The report of the story."""
    return Page(report_page(the_story()))


def test_the_file_is_written_whole_and_the_same_each_time(tmp_path: Path) -> None:
    path = write_report(the_story(), tmp_path / "new" / "report.html")
    assert path == tmp_path / "new" / "report.html"
    content = path.read_bytes()
    assert content.startswith(b"<!DOCTYPE html>") and content.rstrip().endswith(b"</html>")
    assert len(content) < 8e6
    assert write_report(the_story(), tmp_path / "again.html").read_bytes() == content


@pytest.mark.parametrize(
    ("slo", "text"),
    [
        ({}, "No SLO stated"),
        ({"ttft_p99_s": 1.0}, "SLO met"),
        ({"ttft_p99_s": 0.01}, "SLO missed: 1 of 1 limits"),
    ],
)
def test_the_verdict_stands_first(slo: dict[str, float], text: str) -> None:
    page = report_page(the_story(slo=slo))
    assert 0 < page.index(text, page.index("<main>")) < page.index("<section>")


def test_nothing_is_loaded_from_elsewhere() -> None:
    page = the_page()
    for tag, attributes in page.elements:
        assert tag not in ("iframe", "img", "object", "embed", "base", "form")
        for name in ("src", "href", "srcset", "action", "poster"):
            assert (attributes.get(name) or "data:").startswith("data:"), (tag, attributes)
        assert attributes.get("http-equiv") is None
    assert not any(re.search(r"@import|url\(|https?:", style) for style in page.styles)
    plotly, drawing = page.scripts
    assert len(plotly) > 1e6 and not re.search(r"https?:|fetch\(|import\b|XMLHttp", drawing)


def test_no_button_sends_data_away() -> None:
    _, drawing = the_page().scripts
    assert '"showSendToCloud": false' in drawing and '"displaylogo": false' in drawing
    assert '"plotlyServerURL": ""' in drawing


def test_text_of_users_is_shown_as_text() -> None:
    pools = [{"name": VILLAIN, "model": VILLAIN, "accelerator": VILLAIN, VILLAIN + "_bytes": 1.0}]
    text = '{"workload": {"kind": "' + VILLAIN.replace('"', "'") + '"}}'
    facts = some_facts(scenario=VILLAIN, notes=[VILLAIN], pools=pools, scenario_text=text)
    page = Page(report_page(Results(a_record(facts=facts))))
    assert len(page.scripts) == 2 and not any(tag == "b" for tag, _ in page.elements)
    assert page.text.count(VILLAIN) >= 6


def test_the_scenario_and_the_assumptions_are_there() -> None:
    page = Page(report_page(the_story(scenario_text='{"name":"two chats","seed":7}')))
    assert '"seed": 7' in page.text and "max_model_len is 2048" in page.text


def test_there_is_a_place_for_each_figure() -> None:
    identifiers = [attributes.get("id") for _, attributes in the_page().elements]
    assert {f"figure-{name}" for name, *_ in FIGURES} <= set(identifiers)


@pytest.mark.parametrize(
    "results",
    [
        Results(a_record(requests=[], iterations=[], facts=some_facts(notes=[], pools=[], slo={"tpot_p99_s": 1.0}))),
        Results(a_record(facts=some_facts(cost_usd_per_hour=None, scenario_text="not JSON"))),
        a_queue(requests=1),
    ],
    ids=["nothing", "no price", "one request"],
)
def test_there_is_a_report_of_any_run(results: Results) -> None:
    page = Page(report_page(results))
    assert "nan" not in page.text.lower() and "None" not in page.text


def test_an_unknown_price_is_called_so() -> None:
    assert "price not known" in Page(report_page(the_story(cost_usd_per_hour=None))).text


def test_the_memory_ledger_is_shown_for_each_pool() -> None:
    pools = [{"name": "chat", "memory": {"weights_bytes": 2.0**34, "kv_pool_bytes": 2.0**35}}]
    page = Page(report_page(the_story(pools=pools)))
    assert "16.00 GiB" in page.text and "32.00 GiB" in page.text
