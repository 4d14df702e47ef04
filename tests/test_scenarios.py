"""Every scenario of the repository runs to its end, answers its question, and says where each request's time went."""

from pathlib import Path

import pytest

from llmsim import load_scenario, simulate
from llmsim.errors import ScenarioError
from llmsim.scenario import Scenario
from llmsim.study.load import shorter
from tests.results.test_breakdown import check

MOST_REQUESTS = 4000
FILES = sorted((Path(__file__).parent.parent / "scenarios").glob("*.toml"))


def load_or_skip(path: Path) -> Scenario:
    """The scenario; skips when its trace is not beside the repository."""
    try:
        return load_scenario(path)
    except ScenarioError as error:
        if "there is no such file" in str(error):
            pytest.skip(f"its trace is not here: {error}")
        raise


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_runs_to_its_end(path: Path) -> None:
    scenario = load_or_skip(path)
    share = MOST_REQUESTS / len(scenario.workload.generate(scenario.seed))
    results = simulate(shorter(scenario, share) if share < 1 else scenario)
    requests = results.summary()["requests"]
    assert requests["total"] > 0
    assert requests["finished"] + int((results.requests["reason"] == "timeout").sum()) == requests["total"]
    assert results.slo_met is not None
    check(results.record)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_its_first_lines_say_which_question_it_answers(path: Path) -> None:
    comment = path.read_text().partition("\n\n")[0]
    assert all(line.startswith("# ") for line in comment.splitlines())
    assert "?" in comment


def test_retries_keep_a_service_down_after_a_burst_has_passed() -> None:
    storm = load_scenario(FILES[0].parent / "retry_storm.toml")
    answered = {}
    for retries in (0, 2):
        requests = simulate(storm.with_settings({"workload.clients.0.retries": retries})).requests
        # The burst is over at 40 s; what comes until 60 s may still find the queue it left.
        later = requests.query("60 < arrival_s < 100")
        answered[retries] = (later["outcome"] == "finished").mean()
        before = requests.query("arrival_s < 15")
        assert (before["outcome"] == "finished").all()
    assert answered[0] > 0.95
    assert answered[2] < 0.1


def test_there_are_scenarios() -> None:
    assert {"chat_h100", "azure_conversation"} <= {path.stem for path in FILES}
