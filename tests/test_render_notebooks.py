"""Notebooks as pages: everything in them, figures too, and nothing that a browser would have to fetch."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tools.render_notebooks import main

FIGURE = "import plotly.graph_objects as go\ngo.Figure(go.Scatter(x=[1, 2], y=[314159, 4], name='a curve'))"


def saved(folder: Path, *cells: nbformat.NotebookNode) -> Path:
    path = folder / "lecture.ipynb"
    nbformat.write(new_notebook(cells=list(cells)), path)
    return path


@pytest.fixture(autouse=True)
def _of_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))


def test_a_page_holds_prose_results_and_figures_and_fetches_nothing(tmp_path: Path) -> None:
    path = saved(tmp_path, new_markdown_cell("# A lecture"), new_code_cell("print(6 * 7)"), new_code_cell(FIGURE))
    main([str(path), "--out", str(tmp_path / "pages")])
    page = (tmp_path / "pages" / "lecture.html").read_text(encoding="utf-8")
    assert "<title>lecture</title>" in page
    assert "A lecture" in page
    assert ">42\n<" in page
    assert re.search(r"Plotly\.newPlot\([^;]*314159", page)
    assert not re.search(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=[\"']?(?:https?:)?//", page)


def test_a_claim_that_fails_stops_the_command(tmp_path: Path) -> None:
    path = saved(tmp_path, new_code_cell("assert 1 > 2, 'not so'"))
    with pytest.raises(CellExecutionError, match="not so"):
        main([str(path), "--out", str(tmp_path / "pages")])
    assert not (tmp_path / "pages" / "lecture.html").exists()
