"""Every code block of the README and of docs/ is run, and ends as its page says.

In: the pages. Out: a test for each page. Holds: blocks run in their order, in one folder: lines of the shell with the installed
program, Python and plans of job files in processes that have imported what these need. What is not run says why, above the block.
Of the pages of the tour (`tests/packages`), which CI takes beside the tests, they are `long`. Not covered: what commands print,
which noise changes.
"""

import pathlib
import re
import subprocess

import pytest

from tests.docs import run_blocks
from tests.docs.blocks import blocks
from tests.docs.run_blocks import ended
from tests.docs.worlds import BEFORE, WORLDS
from tests.helpers import warm_process
from tests.helpers.extension_folders import needs
from tests.helpers.source import ROOT
from tests.packages.tour import PAGES

ALL_PAGES = ["README.md", *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md"))]
OF_EXTENSIONS = {
    "docs/collect.md": "local_dp",
    "docs/dataflow.md": "dataflow",
    "docs/two_organisations.md": "two_organisations",
}
"""The extension that the blocks of a page need."""
WITH_CODE = [page for page in ALL_PAGES if blocks((ROOT / page).read_text())]


def run(command: list[str], folder: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Run a command in the page's folder; Python and the program in a fork of a process that has imported what they need."""
    match command:
        case ["dp-pipelines", *arguments]:
            return warm_process.run(arguments, folder=folder)
        case [_, "-c", program]:
            return warm_process.run([], folder=folder, program=program)
    return run_blocks.run(command, folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            name,
            marks=[pytest.mark.long] * (name in PAGES)
            + [needs(OF_EXTENSIONS[name]) for _ in [name] if name in OF_EXTENSIONS and "dataflow" not in name],
        )
        for name in WITH_CODE
    ],
)
def test_every_block_of_the_page_works(page: str, tmp_path: pathlib.Path) -> None:
    if page in WORLDS:
        WORLDS[page](tmp_path)
    for block in blocks((ROOT / page).read_text()):
        if block.rule in ("not run", "tested by"):
            continue
        right, was, said = ended(block, tmp_path, BEFORE.get(page, ""), run)
        assert was == right, f"{page}:{block.line} ended with {was}:\n{said[-2000:]}"


@pytest.mark.parametrize(
    "page",
    [pytest.param(name, marks=[needs(OF_EXTENSIONS[name])] if name in OF_EXTENSIONS else []) for name in WITH_CODE],
)
def test_a_block_that_is_not_run_says_why_and_yaml_says_what_file_it_is(page: str) -> None:
    for block in blocks((ROOT / page).read_text()):
        if block.rule == "tested by":
            test = ROOT / block.value
            assert pathlib.PurePath(page).name in test.read_text() or "GUIDE" in test.read_text(), block.line
        if block.rule == "not run":
            assert re.match(r"needs |makes |takes |runs |the ", block.value), f"{page}:{block.line}"
        if block.language == "yaml":
            assert block.rule in ("file", "part of", "tested by", "not run"), f"{page}:{block.line}"


def test_a_block_that_fails_is_found(tmp_path: pathlib.Path) -> None:
    [wrong] = blocks("```sh\ndp-pipelines plan nowhere.yaml\n```\n")
    right, was, _ = ended(wrong, tmp_path, "")
    assert (right, was) == (0, 2)
    [line] = blocks("```sh\nfalse\necho later lines do not hide it\n```\n")
    assert ended(line, tmp_path, "")[1] == 1
