"""Files that differ by all rows of one unit, Eve, whatever she writes: everything but the noisy numbers is the same.

In: 76 jobs (`file_cases`), rows of a dozen other units, and Eve's (`hostile`). Out: for each pair, what the world would see:
failures, log lines, warnings, names of files, layout of the staged Parquet file, listed partitions. Holds: most pairs go
through the pipeline's own steps in this process (`file_pairs`), some through the command line. Where sums are known before the
noise, Eve moves none by more than her bounds: no row of others has another place or value. Not covered: noise.
"""

import pathlib
import random
import re
import warnings
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.csv
import pytest
import yaml

from dp_pipelines.jobs.cli import main
from dp_pipelines.kernels.columns import csv_lines
from dp_pipelines.kernels.columns.csv_format import CsvFormat
from dp_pipelines.release import verdicts
from dp_pipelines.steps.aggregate import ToShards
from tests.helpers import file_cases, file_pairs, hostile

CASES = file_cases.CASES
BY_NAME = {case.name: case for case in CASES}
OF_ONE_BASE = 10
"""Pairs with the same rows of others."""


def found(
    case: file_pairs.Case,
    folder: pathlib.Path,
    pairs: int,
    seed: int,
    longest: int = hostile.LONG,
    runs: file_pairs.Runs | None = None,
) -> list[str]:
    """What differs within pairs of files, in words; a pair's number with each."""
    runs, broken = runs or file_pairs.Runs(case, folder), []
    for number in range(pairs):
        rng = random.Random(f"{case.name} {seed} {number}")
        if number % OF_ONE_BASE == 0:
            others = file_pairs.rows_of(case, rng)
            without = runs.seen(file_pairs.content(case, others))
            assert not without.public["failure"], without.public
            assert without.totals
        with_eve = runs.seen(file_pairs.content(case, others, rng, longest))
        keys = without.public.keys() | with_eve.public.keys()
        differing = [key for key in sorted(keys) if without.public.get(key) != with_eve.public.get(key)]
        broken += [
            f"{number}: {key} is {with_eve.public.get(key)}"
            for key in differing
            if not _unreleased(key, without, with_eve)
        ]
        broken += [f"{number}: {name} moved too far" for name in file_pairs.moved_too_far(runs, without, with_eve)]
    return broken


def _unreleased(key: str, *both: file_pairs.Seen) -> bool:
    """Whether one of a pair has released no private partition, so that its file has no columns of values to compare."""
    return key == "columns" and any(not seen.public.get("columns") for seen in both)


@pytest.mark.parametrize("case", CASES[:: len(CASES) // 15], ids=lambda case: case.name)
def test_whatever_one_unit_writes_shows_in_nothing_but_the_noisy_numbers(
    case: file_pairs.Case, tmp_path: pathlib.Path
) -> None:
    assert found(case, tmp_path / "pairs", 14, seed=0) == []


@pytest.mark.parametrize("case", CASES[3 :: len(CASES) // 12], ids=lambda case: case.name)
@pytest.mark.parametrize(("threads", "memory"), [(1, 2**30), (2, 1)], ids=["one thread", "two threads, spilled"])
def test_whatever_one_unit_writes_shows_in_nothing_but_the_noisy_numbers_on_the_local_runner(
    case: file_pairs.Case, threads: int, memory: int, tmp_path: pathlib.Path
) -> None:
    runs = file_pairs.RunsOnLocal(case, tmp_path / "pairs", threads=threads, memory=memory)
    assert found(case, runs.folder, 8, seed=3, runs=runs) == []


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_two_thousand_pairs_differ_in_nothing_but_the_noisy_numbers_on_the_local_runner(
    case: file_pairs.Case, tmp_path: pathlib.Path
) -> None:
    runs = file_pairs.RunsOnLocal(case, tmp_path / "pairs", threads=2, memory=1)
    assert found(case, runs.folder, 2_000 // len(CASES) + 1, seed=4, runs=runs) == []


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_twenty_thousand_pairs_differ_in_nothing_but_the_noisy_numbers(
    case: file_pairs.Case, tmp_path: pathlib.Path
) -> None:
    assert found(case, tmp_path / "pairs", 20_000 // len(CASES) + 1, seed=1) == []


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES[::6], ids=lambda case: case.name)
def test_text_of_megabytes_shows_in_nothing_but_the_noisy_numbers(
    case: file_pairs.Case, tmp_path: pathlib.Path
) -> None:
    assert found(case, tmp_path / "pairs", 3, seed=2, longest=hostile.LONGEST) == []


# The command line: a whole run, with what it prints.


def told(
    case: file_pairs.Case, folder: pathlib.Path, rows: bytes, capfd: pytest.CaptureFixture[str], runner: str = "local"
) -> dict[str, object]:
    """What a whole run says and leaves: numbers, which noise changes, are cut out of its words."""
    (folder / "rows").write_bytes(rows)
    out = folder / "out"
    capfd.readouterr()
    try:
        code = main.main(
            ["run", str(folder / "job.yaml"), "--output", str(out), "--ledger", "none", "--runner", runner]
        )
    except SystemExit as end:
        code = int(end.code or 0)
    said = capfd.readouterr()
    seen = {
        "code": code,
        "out": _without_numbers(said.out),
        "err": said.err,
        "files": sorted(map(str, folder.rglob("*"))),
    }
    for path in out.glob("*.parquet"):
        seen |= file_pairs.layout_of(path, listed=True)
    for path in sorted(out.rglob("*"), reverse=True):
        path.unlink()
    if out.exists():
        out.rmdir()
    return seen


VERDICT = re.compile(r"^  (\S+) +[\d,]+ of ([\d,]+) (?:differs?|error bars? (?:is|are)) .*")


def _without_numbers(text: str) -> list[str]:
    """Lines without the noisy numbers and what follows from them: widths of columns, the order of rows, verdicts."""
    keys = "|".join(key for (key,) in file_cases.LISTED["public"])
    lines = [re.sub(rf"^ ({keys}) .*", r"\1: its numbers", line) for line in text.splitlines()]
    lines = [VERDICT.sub(r"\1: how many of \2", line).replace(f"; {verdicts.NOISE_NOTE}", "") for line in lines]
    rows = [place for place, line in enumerate(lines) if line.endswith(": its numbers")]
    for place, line in zip(rows, sorted(lines[place] for place in rows), strict=True):
        lines[place] = line
    return [re.sub("[ ─]+", " ", line) for line in lines]


OTHER_KEYS = ("row id", "clamps")
"""Cases whose jobs need the keys that they have."""

COMMAND_LINE = [
    file_pairs.Case(
        name=f"{case.name}, listed", csv=case.csv, job={**case.job, "stage": {**case.job["stage"], **listed}}
    )
    for case in CASES
    if (listed := {"partition_by": ["text"], "partitions": file_cases.LISTED})
    and case.name.split(", ")[1] not in OTHER_KEYS
]


def check_told(
    case: file_pairs.Case, folder: pathlib.Path, pairs: int, capfd: pytest.CaptureFixture[str], runner: str = "local"
) -> Iterator[list[str]]:
    """What differs within pairs that go through the command line."""
    case.write(folder)
    content = yaml.safe_load((folder / "job.yaml").read_text())
    assert content["stages"][file_pairs.NAME]["partitions"] == file_cases.LISTED
    rng = random.Random(case.name)
    others = file_pairs.rows_of(case, rng)
    without = told(case, folder, file_pairs.content(case, others), capfd, runner)
    assert without["code"] == 0, without
    for _ in range(pairs):
        with_eve = told(case, folder, file_pairs.content(case, others, rng), capfd, runner)
        yield [
            f"{key}: {with_eve.get(key)}"
            for key in without.keys() | with_eve.keys()
            if without.get(key) != with_eve.get(key)
        ]


@pytest.mark.parametrize("runner", ["local", pytest.param("direct", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["csv, spread", "parquet, spread"])
def test_a_whole_run_says_the_same_whatever_one_unit_writes(
    name: str, runner: str, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (case,) = (case for case in COMMAND_LINE if case.name == f"{name}, listed")
    assert [differing for differing in check_told(case, tmp_path / "pairs", 2, capfd, runner) if differing] == []


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("case", COMMAND_LINE, ids=lambda case: case.name)
def test_three_hundred_whole_runs_say_the_same_whatever_one_unit_writes(
    case: file_pairs.Case, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pairs = 300 // len(COMMAND_LINE) + 1
    assert [differing for differing in check_told(case, tmp_path / "pairs", pairs, capfd) if differing] == []


# Faults that are planted, and found.


def by_arrow(encoding: str) -> Callable[..., Iterator[pa.Table]]:
    """The reader as it once was: Arrow's, with line breaks in cells and a handler that it calls with decoded lines."""

    def read(stream: object, columns: list[str], form: CsvFormat, *, block: int) -> Iterator[pa.Table]:
        options = {
            "read_options": pa.csv.ReadOptions(encoding=encoding),
            "parse_options": pa.csv.ParseOptions(
                newlines_in_values=form.quote is not None, invalid_row_handler=lambda row: "skip"
            ),
            "convert_options": pa.csv.ConvertOptions(
                include_columns=columns, column_types=dict.fromkeys(columns, pa.binary())
            ),
        }
        yield from (pa.Table.from_batches([batch]) for batch in pa.csv.open_csv(stream, **options))

    return read


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("encoding", "words"), [("utf8", "failure is exit 1"), ("latin-1", "moved too far")])
def test_a_line_that_ends_the_run_or_swallows_others_is_found(
    encoding: str, words: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another encoding makes text of all bytes: what is left is that a quotation mark takes in the lines after it.
    monkeypatch.setattr(csv_lines, "read", by_arrow(encoding))
    assert any(words in line for line in found(BY_NAME["csv, spread"], tmp_path / "pairs", 40, seed=0))


def test_a_warning_about_a_value_is_found(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = ToShards.compute

    def tells(self: ToShards, element: list[pa.Table]) -> object:
        if any(pa.compute.any(pa.compute.is_nan(table["f64"])).as_py() for table in element):
            warnings.warn("invalid value", RuntimeWarning, stacklevel=1)
        return honest(self, element)

    monkeypatch.setattr(ToShards, "compute", tells)
    assert any(
        "warnings is ['invalid value']" in line for line in found(BY_NAME["parquet, spread"], tmp_path / "p", 10, 0)
    )
