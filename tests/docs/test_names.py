"""Pages and headers name files, tests and modules that exist.

In: README, docs, the other pages at the root, and our modules. Out: a failure that names the page and the missing name.
Holds: what moves takes its mentions along. Not covered: what pages say of it.
"""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.source import ROOT, modules, scripts, text_files

MODULES = modules()
PATH = re.compile(r"(?<![\w./<-])(?:tests|dp_pipelines|jobs|transforms|benchmarks)/[\w/]*\w\.py\b")
TEST = re.compile(r"(?<![\w./])test_[a-z0-9_]+")
TEST_OF_FILE = re.compile(r"`(test_[a-z0-9_]+):\s+(\w+)")
DOTTED = re.compile(r"(?<![\w./\"'])dp_pipelines(?:\.[A-Za-z_]+)+\b(?![/*])")


def missing_paths(text: str) -> list[str]:
    """Paths below the checkout that a text names and that hold no file."""
    return [name for name in PATH.findall(text) if not (ROOT / name).is_file()]


def missing_tests(text: str, tests: dict[str, set[str]]) -> list[str]:
    """Tests that a text names and that are not there.

    Args:
        text: names files (`test_keys`), tests (`test_that_...`) and both, as `test_keys: no_two_keys_...`: the beginning
            of a test of that file. Tests that the page writes down itself are there.
        tests: the tests of each file.
    """
    known = {*tests, *(name for names in tests.values() for name in names), *re.findall(r"def (test_\w+)", text)}
    missing = [name for name in TEST.findall(text) if name not in known]
    for file, words in TEST_OF_FILE.findall(text):
        if not any(name.startswith(f"test_{words}") for name in tests.get(file, ())):
            missing.append(f"{file}: {words}")
    return missing


def missing_modules(text: str) -> list[str]:
    """Dotted names below dp_pipelines that are neither a module nor a name inside of one."""
    return [name for name in DOTTED.findall(text) if not is_there(name)]


def is_there(name: str) -> bool:
    """Whether a dotted name is a module, or can be reached from the module that its beginning names."""
    if name in MODULES:
        return True
    above, _, last = name.rpartition(".")
    return above in MODULES and hasattr(importlib.import_module(above), last)


def pages() -> Iterator[Path]:
    """The Markdown pages of the checkout; CHANGELOG tells what was, under the names of its day."""
    yield from (path for path in text_files() if path.suffix == ".md" and path.name != "CHANGELOG.md")


def functions_by_file() -> dict[str, set[str]]:
    """The test functions of each file below tests, by its name."""
    found: dict[str, set[str]] = {}
    for path in scripts():
        if path.is_relative_to(ROOT / "tests"):
            found.setdefault(path.stem, set()).update(re.findall(r"def (test_\w+)", path.read_text()))
    return found


def test_files_and_tests_that_a_page_names_exist() -> None:
    tests = functions_by_file()
    read = list(pages())
    assert ROOT / "docs/proofs/noise.md" in read
    found = {
        str(page.relative_to(ROOT)): missing
        for page in read
        if (missing := missing_paths(page.read_text()) + missing_tests(page.read_text(), tests))
    }
    assert not found, "\n".join(f"{page}: {names}" for page, names in found.items())


def test_files_and_modules_that_a_page_or_a_module_names_exist() -> None:
    found = {
        str(path.relative_to(ROOT)): missing
        for path in (*pages(), *MODULES.values())
        if (missing := missing_paths(path.read_text()) + missing_modules(path.read_text()))
    }
    assert not found, "\n".join(f"{page}: {names}" for page, names in found.items())


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("see tests/noise/test_no_such_file.py.", ["tests/noise/test_no_such_file.py"]),
        ("`jobs/run/no_such_file.py`", ["jobs/run/no_such_file.py"]),
        ("`tests/test_house.py` and <folder>/jobs/a.py", []),
    ],
)
def test_a_missing_file_is_found(text: str, missing: list[str]) -> None:
    assert missing_paths(text) == missing


def test_a_missing_test_and_a_missing_module_are_found() -> None:
    tests = {"test_keys": {"test_no_two_keys_meet"}}
    page = (
        "`test_that_was` and test_keys, `test_keys: no_two_keys_...`, `test_keys: two_keys`; def test_of_the_reader():"
    )
    assert missing_tests(page, tests) == ["test_that_was", "test_keys: two_keys"]
    assert missing_modules("dp_pipelines.gone, dp_pipelines.noise.gone, dp_pipelines.noise.laws") == [
        "dp_pipelines.gone",
        "dp_pipelines.noise.gone",
    ]
    assert missing_modules("dp_pipelines.planning.plan.Plan") == []
