"""The example programs, and the benchmark's: one text under both imports.

In: the programs under examples/pipeline_dp, as they are and with PipelineDP's own import put back. Holds: the only lines that
differ are imports, and both give results of one form.
"""

import ast
import importlib.util
import pathlib
import sys
import types
from typing import Any

import pytest

from tests.helpers.drop_in import BOTH
from tests.helpers.source import ROOT

EXAMPLES = ROOT / "examples" / "pipeline_dp"
IMPORTS = {
    "from dp_pipelines.transforms import pipeline_dp\n": "import pipeline_dp\n",
    "from dp_pipelines.transforms.pipeline_dp import private_beam\n": "from pipeline_dp import private_beam\n",
}


def with_original(text: str) -> str:
    """A program as it was before its import was changed."""
    for ours, theirs in IMPORTS.items():
        text = text.replace(ours, theirs)
    assert "dp_pipelines" not in text.replace("examples/pipeline_dp", "")
    return text


@pytest.fixture(params=BOTH)
def load(request, tmp_path: pathlib.Path, monkeypatch):
    """A program under one of the two imports, as a module."""

    def loaded(name: str) -> Any:
        text = (EXAMPLES / name).read_text()
        path = tmp_path / f"{request.param.replace('-', '_')}_{name}"
        path.write_text(text if request.param == "drop-in" else with_original(text))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, path.stem, module)
        spec.loader.exec_module(module)
        return module

    return loaded


def test_stars_of_films(load, tmp_path: pathlib.Path) -> None:
    program: types.ModuleType = load("movie_ratings.py")
    program.make(tmp_path / "ratings.txt")
    report = program.run(str(tmp_path / "ratings.txt"), str(tmp_path / "stars"))
    assert "max_partitions_contributed=2" in report
    (out,) = tmp_path.glob("stars*")
    stars = dict(ast.literal_eval(line) for line in out.read_text().splitlines())
    assert {1, 2, 3} <= set(stars) <= set(range(1, 31))
    # Each viewer's two films of four at three stars on average, less those of the unselected.
    assert 12_000 < sum(stars.values()) < 18_500


@pytest.mark.parametrize("how", [{}, {"public": True}, {"compare": True}], ids=["private", "public", "compared"])
def test_visits_by_day(load, tmp_path: pathlib.Path, how: dict[str, bool]) -> None:
    program = load("restaurant_visits.py")
    program.make(tmp_path / "visits.csv")
    results, report = program.run(str(tmp_path / "visits.csv"), **how)
    assert "privacy_id" in report.lower()
    assert sorted(day for day, _ in results) == list(range(1, 8))
    visitors = sum(metrics.privacy_id_count for _, metrics in results)
    # 2,000 visitors on two days on average; noise of seven days has a standard deviation below 60.
    assert abs(visitors - 4000) < 600
    assert abs(sum(metrics.sum for _, metrics in results) / 22.5 - 4000) < 2500


def test_the_programs_differ_in_imports_alone() -> None:
    for path in EXAMPLES.glob("*.py"):
        text = path.read_text()
        lines = zip(text.splitlines(), with_original(text).splitlines(), strict=True)
        changed = [ours for ours, theirs in lines if ours != theirs]
        assert 1 <= len(changed) <= 2
        assert all(line + "\n" in IMPORTS for line in changed)


def test_the_programs_tell_how_they_are_used(load, tmp_path: pathlib.Path, monkeypatch, capsys) -> None:
    program = load("restaurant_visits.py")
    for arguments in (["--make", "visits.csv"], ["visits.csv", "--public"]):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["restaurant_visits.py", *arguments])
        program.main()
    assert capsys.readouterr().out.count("MetricsTuple(") == 7
