"""The script that CI runs fails whenever one of its parts does, and ends with the lines of pytest.

In: `.ci/run` in a folder where `make` and `pytest` are programs of a few lines. Out: its exit code and its last lines. Holds: for
each part that can fail, also where the tour of packages ends after the tests. Not covered: the parts themselves.
"""

import os
import pathlib
import shutil
import subprocess

import pytest

from tests.helpers.source import ROOT

MAKE = """#!/usr/bin/env bash
case "$1" in
  test-packages)
    if [ "$TOUR" = late ]; then until [ -e build/tests-ended ]; do sleep 0.05; done; fi
    if [ "$TOUR" = late ] || [ "$TOUR" = early ]; then echo "none failed"; else echo "x FAILED a step"; exit 2; fi ;;
  "$BROKEN") exit 2 ;;
esac
"""
PYTEST = """#!/usr/bin/env bash
echo "== 5 passed =="
exit "$TESTS"
"""


def ended(folder: pathlib.Path, *, tour: str = "early", tests: int = 0, broken: str = "") -> tuple[int, list[str]]:
    """Run the script, and return its exit code and what it printed.

    Args:
        folder: an empty one.
        tour: how the tour of packages ends: `early` or `late`, that is after the tests, or in a failure.
        tests: the exit code of pytest.
        broken: the target of make that fails.
    """
    nobody = "#!/bin/sh\necho 1000\n"  # not root, for whom the script installs programs
    for place, text in (("bin/make", MAKE), ("bin/id", nobody), (".venv/bin/pytest", PYTEST)):
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o700)
    (folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", folder / ".ci" / "run")
    given = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "TOUR": tour, "TESTS": str(tests), "BROKEN": broken}
    done = subprocess.run(
        ["bash", folder / ".ci" / "run"], env={**os.environ, **given}, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout.splitlines()


def test_it_passes_where_all_parts_do(tmp_path: pathlib.Path) -> None:
    code, lines = ended(tmp_path)
    assert code == 0
    assert "== 5 passed ==" in lines


def test_a_tour_that_ends_after_the_tests_is_not_shown_below_their_result(tmp_path: pathlib.Path) -> None:
    code, lines = ended(tmp_path, tour="late")
    assert (code, lines[-1]) == (0, "== 5 passed ==")


@pytest.mark.parametrize("broken", ["lint", "types"])
def test_a_broken_rule_fails_it(broken: str, tmp_path: pathlib.Path) -> None:
    assert ended(tmp_path, broken=broken)[0] == 1


def test_a_failed_test_fails_it(tmp_path: pathlib.Path) -> None:
    assert ended(tmp_path, tests=1)[0] == 1


def test_a_failed_tour_fails_it_and_is_shown(tmp_path: pathlib.Path) -> None:
    code, lines = ended(tmp_path, tour="fails")
    assert code == 1
    assert "x FAILED a step" in lines


def test_without_uv_the_tests_run(tmp_path: pathlib.Path) -> None:
    code, lines = ended(tmp_path, broken="build/lock/bin/uv")
    assert code == 0
    assert "== 5 passed ==" in lines
