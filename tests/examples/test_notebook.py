"""The notebook of the session runs from its first cell to its last, and again.

In: examples/notebook/session.ipynb, a Jupyter kernel of this environment. Out: its outputs. Holds: no other machine is asked.
"""

import json
import sys

import nbformat
import pytest
from nbclient import NotebookClient

from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from tests.helpers.source import ROOT

NOTEBOOK = ROOT / "examples" / "notebook" / "session.ipynb"


@pytest.fixture
def kernels(tmp_path, monkeypatch):
    """A kernel of this very Python, whatever kernels the user has."""
    folder = tmp_path / "jupyter" / "kernels" / "python3"
    folder.mkdir(parents=True)
    start = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    content = {"argv": start, "display_name": "Python 3", "language": "python"}
    (folder / "kernel.json").write_text(json.dumps(content))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.delenv("MPLBACKEND", raising=False)


def executed(folder):
    """The notebook after a run in a folder."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    return client.execute()


def outputs(notebook):
    """What each cell of code gave: its data by kind, and what it printed."""
    found = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            data = {kind: held for output in cell.outputs for kind, held in output.get("data", {}).items()}
            printed = dict.fromkeys(("stdout", "stderr"), "")
            for output in cell.outputs:
                if output.output_type == "stream":
                    printed[output.name] += output.text
            found.append({**printed, **data})
    return found


@pytest.mark.slow
def test_the_notebook_runs_and_a_second_run_gives_the_same_releases(kernels, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    first, second = (outputs(executed(work)) for _ in range(2))
    assert [cell["stderr"] for cell in first] == [""] * len(first)
    assert sum("image/png" in cell for cell in first) == 2
    shown = "\n".join(str(cell.get("text/html", "")) + str(cell["stdout"]) for cell in first)
    assert "left: epsilon 3 of 3" in shown
    assert "left: epsilon 2.5 of 3" in shown
    assert "left: epsilon 1.5 of 3" in shown
    assert "this needs epsilon" in shown
    (plotted,) = [n for n, cell in enumerate(first) if "orders_from" in str(cell.get("text/html"))]
    assert first[plotted] == second[plotted]
    ledger = Ledger.open(str(work / DEFAULT_NAME))
    assert [run.run_id for run in ledger.state.runs_of("made-up shop")] == ["regions", "weeks-of-the-largest"]
    ledger.close()


def test_the_notebook_is_committed_without_outputs():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in notebook.cells)
