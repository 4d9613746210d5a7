"""Names that would do harm on a terminal or beside the files of a release; plans of other code; models that are too much.

In: job files, plans, accounts, models. Out: refusals, with the line of the job file, before anything is made. Holds: names that
did no harm stay valid. Not covered: names of columns, which are those of the data.
"""

import json
import pathlib
import sys
from collections.abc import Callable

import pytest

import dp_pipelines as dp
from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.run import plan_cache
from dp_pipelines.jobs.sql.windows import unit_columns
from dp_pipelines.ledger.ledger import Ledger
from dp_pipelines.training.description import Preparation
from tests.jobs.conftest import Said, Shop, purchases, stage
from tests.jobs.predict.test_predict import model

Call = Callable[..., Said]

COMMANDS = ["a\x1b[2J", "a\nb", "a\x00", "a\x7f", "a\x9b31m", "a\u2028b", "a\u202eb", "a\u2066b", "\ufeffa"]
"""What a terminal takes for a command, a new line, or another direction of writing."""

TAKEN = [
    "manifest.json",
    "Manifest.JSON",
    "report",
    "REPORT",
    "report.html",
    "manifest",
    "nul",
    "Con",
    "com1",
    "aux.parquet",
]
OUTSIDE = ["a/b", "../a", "a\\b", ".hidden", ".."]
HARMLESS = [
    "weekly",
    "model",
    "returns",
    "reports",
    "my-report",
    "Woche 7",
    "größe",
    "a.b",
    "console",
    "com10",
    "👩\u200d🚀",
]


def query() -> dp.Query:
    """Any query."""
    bounds = dp.ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1)
    keys = dp.PublicPartitions(keys=[("a",)])
    return dp.Query(privacy_unit="u", partition_by="k", bounds=bounds, metrics={"rows": dp.Count()}, partitions=keys)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_dataset_that_commands_a_terminal_is_refused_with_its_line(shop: Shop, call: Call, name: str) -> None:
    shop.write(dataset=name)
    for command in (["plan", shop.job], ["run", shop.job, "--output", shop.folder / "out"]):
        said = call(*command)
        assert said.code == 2
        assert f"{shop.job}:1: dataset: must not contain line breaks, control characters" in said.err
        assert name not in said.err
    assert shop.left() == []


def test_an_account_with_such_a_name_is_not_opened_and_no_ledger_is_made(shop: Shop, call: Call) -> None:
    book = shop.folder / "new.sqlite"
    said = call(
        "ledger", "init", "--ledger", book, "--dataset", "a\x1b[2J", "--unit", "u", "--epsilon", "1", "--delta", "1e-6"
    )
    assert (said.code, said.out, book.exists()) == (2, "", False)
    assert "\x1b" not in said.err
    made = Ledger.create(str(book))
    with pytest.raises(RequestError, match="dataset: must not contain"):
        made.open_account("a\u202eb", unit=["u"], words="u", epsilon=1.0, delta=1e-6)
    made.close()


@pytest.mark.parametrize("name", COMMANDS)
def test_metrics_and_stages_with_such_names_are_refused(name: str) -> None:
    with pytest.raises(RequestError, match="must not contain") as said:
        dp.Plan(epsilon=1.0, stages={name: query()})
    assert name not in str(said.value)
    with pytest.raises(RequestError, match="metrics: must not contain"):
        dp.Query(privacy_unit="u", partition_by="k", bounds=query().bounds, metrics={name: dp.Count()})


@pytest.mark.parametrize("name", [*TAKEN, *OUTSIDE])
def test_a_stage_is_not_called_as_a_file_of_a_release_or_a_device(name: str) -> None:
    with pytest.raises(RequestError, match="rename it"):
        dp.Plan(epsilon=1.0, stages={name: query()})


@pytest.mark.parametrize("name", TAKEN)
def test_a_job_with_such_a_stage_is_refused_with_its_line_before_anything_is_made(
    shop: Shop, call: Call, name: str
) -> None:
    shop.write(stages={"weekly": stage(), name: stage()})
    said = call("run", shop.job, "--output", shop.folder / "out")
    assert said.code == 2
    assert f"{shop.job}:" in said.err
    assert f"must not be {name!r}" in said.err
    assert shop.left() == []


@pytest.mark.parametrize("name", HARMLESS)
def test_names_that_do_no_harm_stay_valid(name: str) -> None:
    assert checks.stage_name(name, "") == name
    assert checks.plain(name, "") == name


@pytest.mark.parametrize("pair", [("a", "A"), ("a", "a.parquet"), ("A.parquet", "a"), ("STRASSE", "straße")])
def test_two_stages_have_different_files_on_every_system(pair: tuple[str, str]) -> None:
    with pytest.raises(RequestError, match="whose files some systems treat as one"):
        dp.Plan(epsilon=1.0, stages=dict.fromkeys(pair, query()))


# Plans that were computed before.


@pytest.fixture
def copied(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A copy of some of the library's code, which the cache takes for the library."""
    (tmp_path / "planning" / "noise_levels").mkdir(parents=True)
    for name in ("checks.py", "planning/noise_levels/integer_noise.py"):
        (tmp_path / name).write_bytes((pathlib.Path(dp.__path__[0]) / name).read_bytes())
    monkeypatch.setattr(dp, "__path__", [str(tmp_path)])
    return tmp_path


code_now = plan_cache.code.__wrapped__
"""A process reads its code once: this reads it again."""


def test_a_plan_is_kept_for_the_code_that_computed_it(copied: pathlib.Path) -> None:
    before = code_now()
    assert code_now() == before
    file = copied / "planning" / "noise_levels" / "integer_noise.py"
    text = file.read_text()
    changed = text.replace("1", "2", 1)
    assert (len(changed), changed != text) == (len(text), True)
    file.write_text(changed)
    assert code_now() != before
    file.write_text(text)
    assert code_now() == before
    file.rename(file.with_name("other.py"))
    assert code_now() != before


def test_a_plan_is_kept_for_the_libraries_that_compute_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.metadata

    before, version = code_now(), importlib.metadata.version
    for library in plan_cache.NUMBERS:
        with monkeypatch.context() as patch:
            patch.setattr(importlib.metadata, "version", lambda name, of=library: "0" if name == of else version(name))
            assert code_now() != before


def test_plan_asks_the_cache_for_its_own_code(shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(shop.folder / "cache"))
    call("plan", shop.job)
    monkeypatch.setattr(plan_cache, "code", lambda: "other code")
    call("plan", shop.job)
    assert len(list(plan_cache.folder().glob("shown-*"))) == 2


# Models that are too much.

VISITS = "count(*) OVER (ORDER BY paid_at)"


def test_a_model_that_defines_thousands_of_columns_is_refused_at_once(shop: Shop, call: Call) -> None:
    folder = shop.folder / "model"
    model(folder)
    content = json.loads((folder / "model.json").read_text())
    for kind in ("unit_columns", "columns"):
        added = {f"c{number}": VISITS if kind == "unit_columns" else "price + 1" for number in range(3000)}
        preparation = {**content["preparation"], kind: {**content["preparation"][kind], **added}}
        (folder / "model.json").write_text(json.dumps({**content, "preparation": preparation}))
        said = call("predict", folder, shop.folder / "data" / "part-0.parquet", "--output", shop.folder / "scores")
        assert said.code == 2
        assert f"preparation.{kind} defines more than 500 columns; define fewer" in said.err
        assert not (shop.folder / "scores").exists()


def test_a_job_that_no_model_could_remember_is_refused_before_it_is_charged(shop: Shop, call: Call) -> None:
    many = {f"c{number}": VISITS for number in range(501)}
    shop.write(stages={"weekly": stage(unit_columns=many)})
    said = call("plan", shop.job)
    assert said.code == 2
    assert "stages.weekly.unit_columns: must have at most 500 entries; write fewer" in said.err
    shop.write(columns={f"c{number}": "price + 1" for number in range(501)})
    assert "columns: must have at most 500 entries" in call("plan", shop.job).err
    assert len(Preparation(unit_columns={f"c{number}": VISITS for number in range(500)}).unit_columns) == 500


def test_the_work_of_a_definition_does_not_grow_with_those_before_it() -> None:
    rows = purchases(0, 4).schema

    def calls(count: int) -> int:
        """How many functions are called: unlike seconds, the same on every machine."""
        definitions = {f"c{number}": VISITS for number in range(count)}
        seen = 0

        def count_one(*event: object) -> None:
            nonlocal seen
            seen += 1

        sys.setprofile(count_one)
        try:
            unit_columns.bind(definitions, None, rows, unit=["customer"], values={})
        finally:
            sys.setprofile(None)
        return seen

    calls(1)  # what is imported and kept
    assert calls(400) < 8.5 * calls(50)
