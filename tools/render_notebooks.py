"""Renders the notebooks to HTML pages that need no network: executed from top to bottom, figures included.

    python -m tools.render_notebooks [NOTEBOOK ...] [--out results/notebooks]

Without names all of ``notebooks/``. A notebook whose assertion fails stops the command, with the cell that failed.
"""

import argparse
import os
import re
from collections.abc import Sequence
from pathlib import Path

import nbformat
import plotly.io
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from nbformat import NotebookNode
from plotly.offline import get_plotlyjs

from llmsim.report.html import CONFIG

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
FIGURE = "application/vnd.plotly.v1+json"
NETWORK = ("require_js_url", "mathjax_url", "mermaid_js_url", "mermaid_layout_elk_js_url", "jquery_url")
"""Scripts that nbconvert's page would load from the network; none of them is needed to read it."""
MARGINS = "<style>body.jp-Notebook { max-width: 1180px; margin: 0 auto; padding: 24px; }</style>"


def main(arguments: Sequence[str] | None = None) -> None:
    """Render, and print the path of each page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="*", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/notebooks"))
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    for path in given.notebooks or sorted(NOTEBOOKS.glob("*.ipynb")):
        page = given.out / f"{path.stem}.html"
        page.write_text(render(executed(path), path.stem), encoding="utf-8")
        print(page)


def executed(path: Path) -> NotebookNode:
    """A notebook with the outputs of a run in its own folder, plotly's figures as data.

    Raises:
        CellExecutionError: for the first cell that fails.
    """
    notebook = nbformat.read(path, as_version=4)
    folder = {"metadata": {"path": str(path.parent)}}
    client = NotebookClient(notebook, timeout=600, kernel_name="python3", resources=folder)
    client.execute(env={**os.environ, "PLOTLY_RENDERER": "plotly_mimetype"})
    return notebook


def render(notebook: NotebookNode, title: str) -> str:
    """An executed notebook as a page."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    for output in outputs:
        figure = output.get("data", {}).get(FIGURE)
        if figure is not None:
            options = {"full_html": False, "include_plotlyjs": False, "include_mathjax": False}
            output.data = NotebookNode({"text/html": plotly.io.to_html(figure, config=CONFIG, **options)})
    exporter = HTMLExporter(exclude_input_prompt=True, exclude_output_prompt=True, **dict.fromkeys(NETWORK, ""))
    page, _ = exporter.from_notebook_node(notebook, {"metadata": {"name": title}})
    head = f"<script>{get_plotlyjs()}</script>{MARGINS}</head>"
    return re.sub('<script src=""> *</script>', "", str(page)).replace("</head>", head, 1)


if __name__ == "__main__":
    main()
