"""``llmsim trace`` as its user meets it."""

import json
from pathlib import Path

import pytest

from llmsim.cli import main
from llmsim.workload import TraceWorkload

Output = pytest.CaptureFixture[str]
OWN = "when,in,out,who\n1000,10,1,a\n1500,20,2,b\n4000,30,0,a\n6000,30,4,a\n"
MAPPED = ("--time-col", "when", "--time-unit", "ms", "--in-col", "in", "--out-col", "out")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A file of one's own, one row of which is bad."""
    path = tmp_path / "own.csv"
    path.write_text(OWN)
    return path


def test_describe_tells_what_is_in_a_file(own: Path, capsys: Output) -> None:
    assert main(["trace", "describe", str(own), *MAPPED]) == 0
    printed = capsys.readouterr()
    assert "Requests           3" in printed.out
    assert "Rate               0.4/s on average" in printed.out
    assert "1 bad rows skipped, 3 kept; the first" in printed.out
    assert max(map(len, printed.out.splitlines()[:12])) <= 100
    assert printed.err == ""


def test_json_and_html_hold_the_same(own: Path, tmp_path: Path, capsys: Output) -> None:
    page = tmp_path / "new" / "page.html"
    assert main(["trace", "describe", str(own), *MAPPED, "--model-col", "who", "--json", "--html", str(page)]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["requests"] == 3
    assert facts["clients"] == {"a": 2, "b": 1}
    assert facts["arrivals"]["span_s"] == 5
    html = page.read_text()
    assert "own.csv" in html
    assert "0.4/s on average" in html
    assert all(f'id="figure-{name}"' in html for name in ("arrivals", "lengths", "pairs"))


def test_convert_writes_what_reads_back(own: Path, tmp_path: Path, capsys: Output) -> None:
    for suffix in ("csv", "parquet"):
        out = tmp_path / f"out.{suffix}"
        assert main(["trace", "convert", str(own), str(out), *MAPPED, "--session-col", "who"]) == 0
        assert "1 bad rows skipped" in capsys.readouterr().err
        table = TraceWorkload(path=out).generate(0)
        assert (table.arrival_ns / 1e9).tolist() == [0, 0.5, 5]
        assert table.after.tolist() == [-1, -1, 0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent.csv"], "absent.csv: the trace cannot be read: No such file"),
        (["own.csv"], "no known trace format begins with 'when,in,out,who'"),
        (["own.csv", "--in-col", "in"], "need both --in-col and --out-col"),
        (["own.csv", "--in-col", "in", "--out-col", "nope"], "missing column nope; found: when, in, out, who"),
        (["own.csv", "--in-col", "in", "--out-col", "out", "--time-unit", "h"], "'h'; allowed: s, ms, us, ns, iso"),
        (["own.csv", "--format", "azur"], "unknown format 'azur'"),
    ],
)
def test_faults_are_the_users_and_named(
    own: Path, arguments: list[str], message: str, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(own.parent)
    assert main(["trace", "describe", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_file_without_times_is_told_apart(tmp_path: Path, capsys: Output) -> None:
    path = tmp_path / "lengths.csv"
    path.write_text("num_prefill_tokens,num_decode_tokens\n5,6\n7,8\n")
    assert main(["trace", "describe", str(path), "--html", str(tmp_path / "page.html")]) == 0
    assert "the file has no times of arrival" in capsys.readouterr().out
    assert main(["trace", "convert", str(path), str(tmp_path / "out.csv")]) == 0
    assert "no times of arrival; all sessions begin at 0" in capsys.readouterr().err


def test_a_catalogue_workload_shows_what_it_looks_like(capsys: Output) -> None:
    assert main(["catalog", "workloads", "agent"]) == 0
    printed = capsys.readouterr().out
    assert "Constructed, not measured" in printed
    assert "Sessions" in printed
    assert "rank correlation" in printed
