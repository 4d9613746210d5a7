"""The core gets no new import from an extension, and the list of those that it has is up to date.

In: the checkout, and small made-up packages. Out: a failing test that names the edge. Holds: the list may only shrink; it has the
facade alone once all extensions are found by name.
"""

import pathlib

import pytest

from tests.baseline import edges
from tests.helpers.source import modules


def test_the_core_imports_from_extensions_what_is_listed_and_nothing_else() -> None:
    listed, now = edges.LIST.read_text().splitlines(), edges.edges()
    new = [line for line in now if line not in listed]
    assert not new, f"the core must not import extensions; let it find them by name: {new}"
    gone = [line for line in listed if line not in now]
    assert not gone, f"these edges no longer exist; remove the line of each from tests/baseline/edges.txt: {gone}"
    assert listed == now, "sort tests/baseline/edges.txt: run python tests/baseline/edges.py"


def test_the_table_of_extensions_names_modules_that_exist() -> None:
    known = modules()
    roots = [f"dp_pipelines.{root}" for listed in edges.EXTENSIONS.values() for root in listed.split()]
    absent = [root for root in roots if root not in known]
    assert not absent, f"EXTENSIONS in tests/baseline/edges.py has modules that moved: {absent}"
    assert len(roots) == len(set(roots))


@pytest.mark.parametrize(
    "source",
    [
        "from dp_pipelines.query.models.pate_model import PateModel",
        "from dp_pipelines.query.models import pate_model",
        "def fit():\n    import dp_pipelines.query.models.pate_model",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from dp_pipelines.query.models.pate_model import PateModel",
        "import importlib\nimportlib.import_module('dp_pipelines.query.models.pate_model')",
        "STAGES = {'pate': 'dp_pipelines.query.models.pate_model:PateModel'}",
    ],
)
def test_an_import_of_an_extension_is_found_wherever_it_is(tmp_path: pathlib.Path, source: str) -> None:
    assert edges.edges(tree(tmp_path, source)) == ["fit -> pate: pate_model"]


def test_an_import_of_the_core_is_no_edge(tmp_path: pathlib.Path) -> None:
    assert edges.edges(tree(tmp_path, "from dp_pipelines.query import models")) == []


def test_an_edge_keeps_its_line_when_both_modules_move(tmp_path: pathlib.Path) -> None:
    known = tree(tmp_path, "")
    (tmp_path / "moved.py").write_text("from dp_pipelines.extensions.pate.pate_model import PateModel")
    moved = {
        "dp_pipelines.training.models.fit": tmp_path / "moved.py",
        "dp_pipelines.extensions.pate.pate_model": known["dp_pipelines.query.models.pate_model"],
    }
    assert edges.edges(moved) == ["fit -> pate: pate_model"]


def test_the_facade_has_lines_of_its_own(tmp_path: pathlib.Path) -> None:
    known = tree(tmp_path, "")
    (tmp_path / "__init__.py").write_text("from dp_pipelines.query.models.pate_model import PateModel")
    assert edges.edges({**known, "dp_pipelines": tmp_path / "__init__.py"}) == [
        "facade dp_pipelines -> pate: pate_model"
    ]


def tree(folder: pathlib.Path, source: str) -> dict[str, pathlib.Path]:
    """Return the modules of a made-up package, one of which, `fit`, has this source."""
    for name in ("fit", "empty"):
        (folder / f"{name}.py").write_text(source if name == "fit" else "")
    empty = ("query.models", "query.models.pate_model", "tuning", "tuning.synthetic")
    return {"dp_pipelines.training.fit": folder / "fit.py"} | {f"dp_pipelines.{n}": folder / "empty.py" for n in empty}
