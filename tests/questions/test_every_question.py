"""What holds for every answer: its arithmetic gives its values, its commands exist, it prints and draws."""

import json
import shlex
from collections.abc import Callable
from dataclasses import fields
from io import StringIO
from pathlib import Path

import pytest
import typer
from rich.console import Console

from llmsim import cli
from llmsim.errors import ScenarioError
from llmsim.questions import QUESTIONS, Asked, ask
from llmsim.questions.subject import subject_of
from llmsim.report.answer_page import draw, write_answer
from llmsim.report.answer_text import WIDTH, print_answer
from llmsim.scenario import load_scenario
from tests.conftest import REPOSITORY

PAIRS = {"default": (None, None), "small": ("qwen2.5-7b", "l4")}
NUMBERS = [each.number for each in QUESTIONS]
EACH = pytest.mark.parametrize("number", NUMBERS)
OF_EACH_PAIR = pytest.mark.parametrize("pair", PAIRS)

Ask = Callable[..., Asked]
Output = pytest.CaptureFixture[str]


def printed(asked: Asked) -> str:
    """The answer as the terminal shows it."""
    file = StringIO()
    print_answer(asked, Console(width=WIDTH, file=file))
    return file.getvalue()


def test_numbers_count_up_and_modules_differ() -> None:
    assert list(range(1, len(QUESTIONS) + 1)) == NUMBERS
    assert len({each.module for each in QUESTIONS}) == len(QUESTIONS)
    assert len(QUESTIONS) >= 18


@EACH
@OF_EACH_PAIR
class TestAnswer:
    def test_every_formula_gives_its_value(self, number: int, pair: str, asked: Ask) -> None:
        lines = asked(number, *PAIRS[pair]).answer.arithmetic
        assert len({line.key for line in lines}) == len(lines) >= 3
        for line in lines:
            if line.formula:
                found = eval(line.numbers, {"__builtins__": {}}, {"min": min})
                assert found == pytest.approx(line.value, rel=2e-3, abs=1e-9), line

    def test_it_says_something_of_every_kind(self, number: int, pair: str, asked: Ask) -> None:
        answer = asked(number, *PAIRS[pair]).answer
        assert all(getattr(answer, field.name) for field in fields(answer))
        assert len({each.key for each in answer.contrasts}) == len(answer.contrasts)
        assert all(each.why and each.simulated is not None for each in answer.contrasts)
        assert 2 <= len(answer.commands) <= 3

    def test_it_prints_80_columns_and_nothing_unfilled(self, number: int, pair: str, asked: Ask) -> None:
        text = printed(asked(number, *PAIRS[pair]))
        assert all(len(line) <= WIDTH for line in text.splitlines() if "llmsim " not in line)
        assert not any(word in text for word in ("nan", "None", "inf ", "{", "…"))

    def test_it_is_strict_json(self, number: int, pair: str, asked: Ask) -> None:
        told = json.loads(json.dumps(asked(number, *PAIRS[pair]).as_dict(), allow_nan=False))
        assert told["number"] == number
        assert told["short"]

    def test_its_pictures_are_drawn(self, number: int, pair: str, asked: Ask) -> None:
        for picture in asked(number, *PAIRS[pair]).answer.pictures:
            figure = draw(picture)
            assert len(figure.data) == len(picture.series) > 0
            assert figure.layout.xaxis.title.text
            assert figure.layout.yaxis.title.text
            assert all(len(each.x) == len(each.y) > 0 for each in picture.series)


@EACH
class TestCommands:
    def test_they_are_ones_that_the_command_line_takes(
        self, number: int, asked: Ask, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(REPOSITORY)
        commands = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]
        for each in asked(number).answer.commands:
            name, command, *arguments = shlex.split(each.command)
            assert name == "llmsim"
            context = commands[command].make_context(command, arguments)
            if isinstance(context.params.get("scenario"), Path):
                load_scenario(context.params["scenario"], context.params.get("settings") or ())

    def test_explain_and_ask_answer(self, number: int, asked: Ask, capsys: Output) -> None:
        for each in asked(number).answer.commands:
            _, command, *arguments = shlex.split(each.command)
            if command == "explain":
                assert cli.main([command, *arguments]) == 0, each.command
                assert capsys.readouterr().out
            elif command == "ask" and "--model" not in arguments and "--accelerator" not in arguments:
                assert int(arguments[0]) in NUMBERS


class TestCommand:
    def test_it_lists_every_question(self, capsys: Output) -> None:
        assert cli.main(["ask"]) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert all(each.text in text and each.about in text for each in QUESTIONS)
        assert cli.main(["ask", "--json"]) == 0
        assert [each["number"] for each in json.loads(capsys.readouterr().out)] == NUMBERS

    def test_it_prints_an_answer_and_writes_its_page(self, tmp_path: Path, capsys: Output) -> None:
        page = tmp_path / "pages" / "bounds.html"
        assert cli.main(["ask", "3", "--accelerator", "l4", "--html", str(page)]) == 0
        shown = capsys.readouterr()
        assert "3. Show that decode" in shown.out
        assert "llama-3.1-8b on one l4" in shown.out
        assert str(page) in shown.err

    def test_json_has_the_numbers(self, capsys: Output) -> None:
        assert cli.main(["ask", "3", "--json"]) == 0
        told = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
        assert told["arithmetic"]["ridge"]["value"] == pytest.approx(295, rel=0.005)

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["0"], "allowed: 1 to"),
            (["99"], "question 99: there is none"),
            (["3", "--model", "llama-3.1-8"], "did you mean 'llama-3.1-8b'"),
            (["3", "--accelerator", "h100-sx"], "did you mean 'h100-sxm'"),
            (["3", "--model", "llama-3.1-405b"], "does not fit on h100-sxm"),
            (["10", "--model", "deepseek-v3", "--accelerator", "h200-sxm"], "no wider engine fits its node of 8"),
        ],
    )
    def test_what_cannot_be_asked_is_told_on_standard_error(
        self, arguments: list[str], said: str, capsys: Output
    ) -> None:
        assert cli.main(["ask", *arguments]) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        assert said in shown.err
        assert "Traceback" not in shown.err


class TestPage:
    def test_it_needs_no_network_and_has_the_whole_answer(self, tmp_path: Path, asked: Ask) -> None:
        path = tmp_path / "page.html"
        found = asked(5)
        write_answer(found, path)
        page = path.read_text(encoding="utf-8")
        own = page[: page.index('<script id="plotly">')] + page[page.rindex("<main>") :]
        assert 'src="' not in own
        assert "http" not in own
        assert "Request A has 960 tokens in" in own
        assert all(each.command in own for each in found.answer.commands)
        assert own.count('<div id="figure-') == len(found.answer.pictures)

    def test_the_same_answer_gives_the_same_bytes(self, tmp_path: Path, asked: Ask) -> None:
        pages = []
        for found in (asked(3), ask(3)):
            write_answer(found, tmp_path / "page.html")
            pages.append((tmp_path / "page.html").read_bytes())
        assert pages[0] == pages[1]


class TestSubject:
    def test_it_takes_as_few_gpus_as_hold_the_model(self) -> None:
        found = subject_of("llama-3.1-70b", "h100-sxm")
        assert found.tensor_parallel_size == 2
        assert "Tensor parallel size 2" in found.notes[0]
        assert "--tensor-parallel-size 2" in found.flags
        assert subject_of("llama-3.1-8b", "h100-sxm").notes == ()

    def test_a_fleet_takes_fp8_and_room_for_a_batch(self) -> None:
        found = subject_of("llama-3.1-70b", "h100-sxm", fp8=True)
        assert (found.tensor_parallel_size, found.quantization, found.kv_cache_dtype) == (4, "fp8", "fp8")
        without = subject_of("llama-3.1-8b", "a100-sxm-80gb", fp8=True)
        assert without.quantization is None

    def test_borrowed_efficiencies_are_said(self) -> None:
        assert any("borrows the efficiencies" in note for note in subject_of("llama-3.1-8b", "mi300x").notes)

    def test_files_of_ones_own_are_taken(self, tmp_path: Path) -> None:
        chip = tmp_path / "chip.toml"
        chip.write_text(
            "fp16_flop_per_s = 5e14\nhbm_bandwidth_bytes_per_s = 2e12\nmemory_bytes = 6e10\n"
            "link_bandwidth_bytes_per_s = 4.5e11\nprice_usd_per_hour = 1.5\n"
        )
        assert "chip.toml" in ask(3, "llama-3.1-8b", str(chip)).answer.commands[0].command

    def test_a_model_too_short_for_the_questions_is_refused(self, tmp_path: Path) -> None:
        config = {
            "architectures": ["LlamaForCausalLM"],
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_attention_heads": 12,
            "num_hidden_layers": 12,
            "vocab_size": 32_000,
            "max_position_embeddings": 1024,
            "torch_dtype": "bfloat16",
        }
        (tmp_path / "config.json").write_text(json.dumps(config))
        with pytest.raises(ScenarioError, match="a request may have 1,024 tokens, and the questions are about 2,048"):
            ask(3, str(tmp_path / "config.json"))
