"""The measures of a small core count what they say, and each of them has a line."""

import pathlib

from tests.baseline import measures
from tests.helpers.source import modules


def test_statements_lines_and_drivers_of_this_checkout_are_counted() -> None:
    files = {"dp_pipelines.errors": str(modules()["dp_pipelines.errors"]), "dp_pipelines.steps.unit_join": ""}
    lines = dict(line.split(": ", 1) for line in measures.measures(files))
    assert list(lines) == [
        "statements in the core",
        "lines loaded by a run of one metric, cold caches",
        "modules of training, joins, rollups and compare loaded by it, by name",
        "names of extensions in core source, outside the facade",
        "imports from the core into extensions",
        "after deleting the folder of each extension in a copy",
        "lines outside its folder in the commit that adds the toy stage type",
        "run drivers",
    ]
    assert int(lines["statements in the core"].replace(",", "")) > 10_000
    of_errors = len(modules()["dp_pipelines.errors"].read_text().splitlines())
    assert lines["lines loaded by a run of one metric, cold caches"] == f"{of_errors:,} in 2 modules"
    assert lines["modules of training, joins, rollups and compare loaded by it, by name"] == "1"
    assert "jobs.run.run" in lines["run drivers"]


def test_names_of_extensions_are_counted_once_for_each_module() -> None:
    source = (
        "from dp_pipelines.query.models.pate_model import PateModel\nx: PateModel = PateModel()\nfederated = 'pate'"
    )
    assert measures.names_of_extensions([source, source]) == {"pate": 4, "federated": 2}
    assert not measures.names_of_extensions(["def check(path): # pate\n    return path.compatible, 'tune'"])


def test_every_extension_has_words_by_which_it_is_found() -> None:
    folders = {path.parent.name for path in (measures.ROOT / "dp_pipelines" / "extensions").glob("*/__init__.py")}
    assert folders <= set(measures.NAMES)
    assert set(measures.edges.EXTENSIONS) - {"pipeline_dp", "beam_yaml"} <= set(measures.NAMES)


def test_a_module_with_a_function_run_drives_runs(tmp_path: pathlib.Path) -> None:
    (tmp_path / "run.py").write_text("def run(): ...")
    known = {
        "dp_pipelines.jobs.run.toy_run": tmp_path / "run.py",
        "dp_pipelines.jobs.cli.toy_run": tmp_path / "run.py",
    }
    assert measures.run_drivers(known) == ["dp_pipelines.jobs.run.toy_run"]
