"""Folders and temporary files of one user: mode 0700 and 0600 whatever the umask, and never a file that was there before.

In: the source; a run of the command line under several umasks; files planted in a shared folder. Out: a failing test that names
each call or file. Not covered: systems without POSIX permissions.
"""

import ast
import os
import pathlib
import stat
from collections.abc import Iterator

import pytest

from dp_pipelines import private_folders
from dp_pipelines.collect.domain import Choices
from dp_pipelines.collect.memoised import Memoised
from dp_pipelines.collect.question import Question
from dp_pipelines.jobs.outputs import release_place
from tests.helpers import warm_process
from tests.helpers.source import modules

JOB = """
dataset: shop
privacy_unit: customer
budget: {epsilon: 1, delta: 1.0e-6}
source: {csv: rows.csv, types: {customer: string, page: string}}
stages:
  visits:
    kind: aggregate
    partition_by: [page]
    having: "people >= 90"
    bounds: {max_partitions_contributed: 1, max_contributions_per_partition: 1}
    partitions: {public_sorted_file: pages.parquet}
    metrics: {people: {kind: privacy_id_count}}
"""


def umask_decides(source: str) -> Iterator[int]:
    """Yield the lines of calls whose mode is that of the last folder only, and of files that may have been there before."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        names = {keyword.arg for keyword in node.keywords}
        flags = {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute) and part.attr.startswith("O_")}
        of_the_last = (node.func.attr == "makedirs" and "mode" in names) or {"mode", "parents"} <= names
        there_before = node.func.attr == "open" and "O_CREAT" in flags and "O_EXCL" not in flags
        if of_the_last or there_before:
            yield node.lineno


def test_no_call_leaves_the_mode_of_a_private_folder_to_the_umask_or_opens_a_file_that_was_there() -> None:
    found = {name: list(umask_decides(path.read_text())) for name, path in modules().items()}
    assert len(found) > 500
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "fault",
    [
        "folder.mkdir(mode=0o700, parents=True, exist_ok=True)",
        "os.makedirs(folder, mode=0o700)",
        "os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)",
    ],
)
def test_each_such_call_is_found(fault: str) -> None:
    assert list(umask_decides(fault)) == [1]


@pytest.mark.parametrize("umask", [0, 0o002, 0o022, 0o077])
def test_every_missing_folder_is_made_for_this_user_alone(umask: int, tmp_path: pathlib.Path) -> None:
    before = os.umask(umask)
    try:
        private_folders.make(tmp_path / "a" / "b" / "c")
        private_folders.make(tmp_path / "a" / "b" / "c")
    finally:
        os.umask(before)
    assert [mode_of(tmp_path / name) for name in ("a", "a/b", "a/b/c")] == [0o700] * 3


def test_a_file_in_the_place_of_a_folder_is_an_error(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OSError, match=r"file"):
            private_folders.make(folder)


@pytest.mark.parametrize("umask", [0, 0o002])
def test_state_and_cache_of_a_run_are_closed_to_all_others_whatever_the_umask(
    umask: int, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop.yaml").write_text(JOB)
    (tmp_path / "rows.csv").write_text("customer,page\na,x\nb,y\n")
    program = f"""
import os, sys
import pyarrow as pa, pyarrow.parquet as pq
from dp_pipelines.jobs.cli import main
os.umask({umask})
pq.write_table(pa.table({{"page": ["x", "y"]}}), "pages.parquet")
sys.exit(main.main(["run", "shop.yaml", "--output", "out"]))
"""
    for name in ("state", "cache"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(tmp_path / name / "home"))
    run = warm_process.run([], folder=tmp_path, program=program)
    assert run.returncode == 0, run.stderr
    made = [path for top in ("state", "cache") for path in (tmp_path / top, *(tmp_path / top).rglob("*"))]
    assert {path.name for path in made} >= {"anchors", "dp_pipelines", "lists"}
    open_to_others = {str(path.relative_to(tmp_path)): oct(mode_of(path)) for path in made if mode_of(path) & 0o077}
    assert open_to_others == {}


def test_a_release_that_waits_for_its_bucket_is_closed_to_all_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    before = os.umask(0)
    try:
        place = release_place.place_of("s3://bucket/folder")
        place.folder.mkdir(parents=True)
    finally:
        os.umask(before)
    assert mode_of(place.folder.parent.parent) == 0o700


@pytest.mark.parametrize("kind", ["file", "link"])
def test_what_others_planted_in_a_shared_folder_never_gets_remembered_answers(
    kind: str, tmp_path: pathlib.Path
) -> None:
    question, file, theirs = (
        Question("asked", Choices(("yes", "no")), epsilon=1),
        tmp_path / "mine.json",
        tmp_path / "theirs",
    )
    theirs.write_text("")
    theirs.chmod(0o666)
    for name in ("mine.json.new", ".mine.json.new"):
        planted = tmp_path / name
        if kind == "link":
            planted.symlink_to(theirs)
        else:
            os.link(theirs, planted)
    Memoised(question, file).report("yes")
    assert theirs.read_text() == ""
    assert mode_of(file) == 0o600
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".answers-")]


def mode_of(path: pathlib.Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)
