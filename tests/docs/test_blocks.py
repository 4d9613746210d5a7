"""Every code block of the README and of docs/ is run, and ends as its page says.

In: the pages. Out: a test for each page. Holds: blocks run in their order, in one folder, with the installed program; what is not
run says why, above the block. Not covered: what the commands print, which noise changes.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import textwrap

import pytest

from dp_pipelines.jobs.spec import yaml_lines
from tests.docs.blocks import Block, blocks
from tests.docs.worlds import BEFORE, WORLDS
from tests.helpers.source import ROOT

PAGES = ["README.md", *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md"))]
WITH_CODE = [page for page in PAGES if blocks((ROOT / page).read_text())]


def run(command: list[str], folder: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """A command in the page's folder, with the installed program on its path."""
    path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=300
    )


def merged(whole: object, part: object) -> object:
    """A tree with another one put into it."""
    if isinstance(whole, dict) and isinstance(part, dict):
        return {key: merged(whole.get(key), part.get(key, whole.get(key))) for key in {**whole, **part}}
    return part


def with_part(file: pathlib.Path, place: str, part: object) -> None:
    """Put a part into a job file, at a place such as `stages.weekly`."""
    for name in reversed(place.split(".") if place else []):
        part = {name: part}
    file.write_text(json.dumps(merged(yaml_lines.parse(file.read_text(), file.name).data, part), indent=1))


def parameters(file: pathlib.Path) -> list[str]:
    """A value for each parameter of a job file."""
    values = {"date": "2026-01-05", "string": "data", "int": "1", "float": "1.0"}
    declared = yaml_lines.parse(file.read_text(), file.name).data.get("params", {})
    return [word for name, of in declared.items() for word in ("--param", f"{name}={values[of['type']]}")]


def ended(block: Block, folder: pathlib.Path, before: str) -> tuple[int, int, str]:
    """Run a block: the exit code that is right, the one it had, and what it said."""
    if block.language == "sh":
        done = run(["bash", "-euo", "pipefail", "-c", block.text], folder)
        return int(block.value) if block.rule == "exits with" else 0, done.returncode, done.stderr
    if block.language == "python":
        done = run([sys.executable, "-c", before + block.text], folder)
        return 0, done.returncode, done.stderr
    name, _, place = block.value.partition(" at ")
    file = folder / name
    if block.rule == "part of":
        with_part(file, place, yaml_lines.parse(textwrap.dedent(block.text), name).data)
    else:
        file.write_text(block.text)
    if "stages" not in yaml_lines.parse(file.read_text(), file.name).data:
        return 0, 0, ""
    if not list(folder.glob("*/*.parquet")):
        return 0, 0, "a job before its data"
    done = run(["dp-pipelines", "plan", name, *parameters(file)], folder)
    return 0, done.returncode, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_CODE)
def test_every_block_of_the_page_works(page: str, tmp_path: pathlib.Path) -> None:
    if page in WORLDS:
        WORLDS[page](tmp_path)
    for block in blocks((ROOT / page).read_text()):
        if block.rule in ("not run", "tested by"):
            continue
        right, was, said = ended(block, tmp_path, BEFORE.get(page, ""))
        assert was == right, f"{page}:{block.line} ended with {was}:\n{said[-2000:]}"


@pytest.mark.parametrize("page", WITH_CODE)
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
