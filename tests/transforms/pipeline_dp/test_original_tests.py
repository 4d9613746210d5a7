"""The table of PipelineDP's behavioural tests: complete, true of its own files, and each behaviour asserted here.

In: original_tests.txt; where PIPELINE_DP_CHECKOUT names a checkout of PipelineDP, its tests, run against the drop-in in a process
of their own. What is changed in them: imports, and two lines of a fixture that write into the engine's internals.
"""

import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

HERE = pathlib.Path(__file__).parent
OURS = "dp_pipelines.transforms.pipeline_dp"
VERDICTS = {"runs", "refused", "differs", "mixed", "internals"}
PASSED_ON = ("aggregate_params_test.py", "beam_backend_test.py", "pipeline_backend_test.py")
REFUSALS = ("RequestError", "NoCounterpartError")
IMPORTS = (
    (r"^import pipeline_dp$", "from dp_pipelines.transforms import pipeline_dp"),
    # What the tests of backends combine with is no part of a backend.
    (r"^from pipeline_dp import(?! combiners)", f"from {OURS} import"),
    (r"^(from|import) pipeline_dp(?!\.combiners)\.(\w+)", rf"\1 {OURS}.\2"),
    (r"\n        dp_engine\._(?:report_generators\.append|add_report_stage)\((?:[^()]|\([^()]*\))*\)", ""),
)


def table() -> dict[str, dict[str, tuple[str, str]]]:
    """By file and test of the original: the verdict, and what stands for it here."""
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for line in (HERE / "original_tests.txt").read_text().splitlines():
        if line.startswith("## "):
            tests = found.setdefault(line.removeprefix("## "), {})
        elif line.startswith("| test_"):
            name, verdict, ours = (cell.strip() for cell in line.strip("|").split("|"))
            tests[name] = (verdict, ours)
    return found


def checkout() -> pathlib.Path:
    """The folder of the original's tests."""
    named = os.environ.get("PIPELINE_DP_CHECKOUT")
    if not named:
        pytest.skip("PIPELINE_DP_CHECKOUT names no checkout of PipelineDP")
    return pathlib.Path(named).expanduser() / "tests"


def rewritten(text: str) -> str:
    """A test of the original with the drop-in's imports."""
    for pattern, ours in IMPORTS:
        text = re.sub(pattern, ours, text, flags=re.M)
    return text


def outcomes(name: str, folder: pathlib.Path) -> list[tuple[str, str]]:
    """How each case of a file of the original ends against the drop-in: empty, or the failure."""
    (folder / name).write_text(rewritten((checkout() / name).read_text()))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junit-xml={folder}/found.xml"]
    subprocess.run([*command, f"--rootdir={folder}", name], cwd=folder, capture_output=True, check=False)
    cases = ElementTree.parse(folder / "found.xml").iter("testcase")
    return [(case.get("name", ""), "\n".join(failure.text or "" for failure in case)) for case in cases]


def test_every_verdict_is_one_of_the_five_and_every_behaviour_is_asserted_here() -> None:
    for tests in table().values():
        for verdict, ours in tests.values():
            assert verdict.partition(":")[0] in VERDICTS
            if ours == "-":
                assert verdict.startswith("internals")
                continue
            module, _, name = ours.partition("::")
            assert f"def {name}(" in (HERE / f"{module}.py").read_text(), ours


def test_a_changed_import_is_all_that_a_test_needs() -> None:
    text = "import pipeline_dp\nfrom pipeline_dp import dp_engine\nfrom pipeline_dp.beam_backend import BeamBackend\n"
    assert rewritten(text).count(OURS) == 2
    assert "from dp_pipelines.transforms import pipeline_dp\n" in rewritten(text)


@pytest.mark.parametrize("file", table())
def test_the_table_has_every_behavioural_test_of_the_original(file: str) -> None:
    names = set(re.findall(r"^    def (test_\w+)", (checkout() / file).read_text(), flags=re.M))
    assert names == set(table()[file])


@pytest.mark.slow
@pytest.mark.parametrize("file", table())
def test_tests_of_the_original_end_as_the_table_says(file: str, tmp_path: pathlib.Path) -> None:
    listed = table()[file]
    found: dict[str, list[str]] = {name: [] for name in listed}
    for case, failure in outcomes(file, tmp_path):
        found[max((name for name in listed if case.startswith(name)), key=len)].append(failure)
    for name, failures in found.items():
        verdict, _, _ = listed[name][0].partition(":")
        assert failures, name
        if verdict == "runs":
            assert not any(failures), name
        elif verdict == "refused":
            assert all(any(word in failure for word in REFUSALS) for failure in failures), name
        elif verdict == "mixed":
            assert any(failures), name
            assert not all(failures), name


@pytest.mark.slow
@pytest.mark.parametrize("file", PASSED_ON)
def test_tests_of_modules_that_are_passed_on_pass(file: str, tmp_path: pathlib.Path) -> None:
    found = outcomes(file, tmp_path)
    assert len(found) > 20
    assert [name for name, failure in found if failure] == []
