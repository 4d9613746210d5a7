"""Which ledger a run is charged to: what is made, what must be there, and what is refused before anything is left.

In: the shop, without its roomy ledger. Out: exit codes, messages, files. Holds: runs are real. Not covered: what happens to
a run once it is admitted (`test_ledgered_run`).
"""

import shlex
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from tests.helpers.extension_folders import needs
from tests.jobs.conftest import Said, Shop, purchases, stage

Call = Callable[..., Said]


@pytest.fixture
def fresh(shop: Shop) -> Shop:
    """The shop before it has a ledger."""
    shop.without_ledger()
    return shop


def ledger_of(shop: Shop, name: str = DEFAULT_NAME) -> Ledger:
    """The ledger beside the job."""
    return Ledger.open(str(shop.folder / name))


def everything(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_the_first_run_opens_the_account_and_says_so(fresh: Shop, call: Call) -> None:
    said = call("run", fresh.job, "--output", fresh.folder / "out")
    assert said.code == 0
    assert said.err.startswith("note: opens the account 'shop' in the ledger ")
    assert "this job's budget as its cap, epsilon 8 and delta 1e-05: all jobs on these data together" in said.err
    assert f"raise the cap with: dp-pipelines ledger raise {fresh.job} --epsilon E --delta D\n" in said.err
    account = ledger_of(fresh).account("shop")
    assert (account.epsilon, account.delta, account.unit, account.rule) == (8.0, 1e-5, ("customer",), "reserved")
    assert account.sources == (str(fresh.folder.resolve() / "data" / "*.parquet"),)
    assert (fresh.folder / DEFAULT_NAME).stat().st_mode & 0o777 == 0o600
    assert call("run", fresh.job, "--output", fresh.folder / "again").err == ""


@needs("sql_select")
def test_what_a_statement_prints_for_its_account_can_be_run_as_it_stands(
    fresh: Shop, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(fresh.folder)
    asked = ["--dataset", "shop", "--unit", "customer", "--epsilon", "8", "--delta", "1e-5", "--max-contributions", "2"]
    text = "SELECT product, count(*) AS n FROM 'data/*.parquet' GROUP BY ALL HAVING n > 5"
    first = call("sql", text, *asked, "--output", "my out/first")
    assert first.code == 0
    printed = shlex.split(first.err.partition("raise the cap with: ")[2].splitlines()[0])
    assert printed[:3] == ["dp-pipelines", "ledger", "raise"]
    raised = call(*({"E": "20", "D": "1e-4"}.get(word, word) for word in printed[1:]))
    assert (raised.code, raised.err) == (0, "")
    assert ledger_of(fresh, f"my out/{DEFAULT_NAME}").account("shop").epsilon == 20
    # Another threshold is another draw: the raised cap alone has no room for it, and a plan of two runs has.
    other = call("sql", text.replace("5", "6"), *asked, "--output", "my out/other")
    assert (other.code, "--runs 2 --run-id ID`" in other.err) == (3, True)
    assert "ledger raise" not in other.err
    for number in range(2):
        more = [
            text.replace("5", str(6 + number)),
            *asked,
            "--runs",
            "2",
            "--run-id",
            f"r{number}",
            "--output",
            f"my out/{number}",
        ]
        assert call("sql", *more).code == 0


def test_a_refusal_of_the_budget_names_every_way_on(fresh: Shop, call: Call) -> None:
    assert call("run", fresh.job, "--output", fresh.folder / "out").code == 0
    job = fresh.write(budget={"epsilon": 8.5, "delta": 1e-5})
    said = call("run", job, "--output", fresh.folder / "more")
    assert (said.code, said.out) == (3, "")
    assert said.err.startswith("note: this job differs from earlier ones")
    assert said.err.count("error: ") == 1
    for way in ("`dp-pipelines ledger show`", "`dp-pipelines ledger raise`", "--ledger none", "--synthetic"):
        assert way in said.err


def test_a_plan_that_cannot_be_made_is_not_sent_to_the_ledger(fresh: Shop, call: Call) -> None:
    said = call("run", fresh.write(budget={"epsilon": 2e-6, "delta": 1e-45}), "--output", fresh.folder / "out")
    assert said.code == 3
    assert "ledger raise" not in said.err


def test_an_account_of_a_job_without_delta_has_room_for_it(fresh: Shop, call: Call) -> None:
    listed = stage(partitions={"public": [["p0"]]}, metrics={"orders": {"kind": "count"}})
    job = fresh.write(budget={"epsilon": 1.0, "delta": 0}, stages={"weekly": listed})
    assert call("run", job, "--output", fresh.folder / "out").code == 0


def test_a_named_ledger_that_is_not_there_is_refused_and_not_made(fresh: Shop, call: Call) -> None:
    said = call("run", fresh.job, "--output", fresh.folder / "a" / "out", "--ledger", fresh.folder / "slip.sqlite")
    assert (said.code, said.out) == (2, "")
    assert "does not exist" in said.err
    assert fresh.left() == []
    assert not (fresh.folder / DEFAULT_NAME).exists()


def test_a_named_ledger_without_the_account_is_refused_and_unchanged(fresh: Shop, call: Call) -> None:
    other = fresh.folder / "team.sqlite"
    assert call("ledger", "init", "--ledger", other).code == 0
    before = everything(fresh.folder)
    said = call("run", fresh.job, "--output", fresh.folder / "out", "--ledger", other)
    assert (said.code, said.out) == (2, "")
    assert "has no account" in said.err
    assert everything(fresh.folder) == before


def test_another_privacy_unit_than_the_accounts_is_refused_at_its_line(shop: Shop, call: Call) -> None:
    before = everything(shop.folder)
    said = call("run", shop.write(privacy_unit=["customer", "store"]), "--output", shop.folder / "out")
    assert (said.code, said.out) == (2, "")
    assert "job.yaml:" in said.err
    assert "privacy_unit: is not that of the account 'shop', which protects each customer" in said.err
    assert {**everything(shop.folder), "job.yaml": b""} == {**before, "job.yaml": b""}


@pytest.mark.parametrize("how", ["the same pattern", "some of the files", "through a link", "one file by its name"])
def test_files_of_another_account_are_refused_and_open_no_account(shop: Shop, call: Call, how: str) -> None:
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0
    (shop.folder / "link").symlink_to(shop.folder / "data", target_is_directory=True)
    pattern = {
        "the same pattern": "data/*.parquet",
        "some of the files": "data/part-?.parquet",
        "through a link": "link/*.parquet",
        "one file by its name": "link/part-1.parquet",
    }[how]
    before = everything(shop.folder)
    job = shop.write(dataset="boutique", source={"parquet": pattern})
    said = call("run", job, "--output", shop.folder / "other")
    assert (said.code, said.out) == (2, "")
    assert "belongs to the account 'shop'" in said.err
    assert {**everything(shop.folder), "job.yaml": b""} == {**before, "job.yaml": b""}
    assert list(ledger_of(shop).state.accounts) == ["shop"]


def test_other_files_under_another_account_of_the_same_ledger_are_fine(shop: Shop, call: Call) -> None:
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0
    (shop.folder / "data" / "deeper").mkdir()
    pa.parquet.write_table(purchases(7), shop.folder / "data" / "deeper" / "part-0.parquet")
    job = shop.write(dataset="boutique", source={"parquet": "data/deeper/*.parquet"})
    assert call("run", job, "--output", shop.folder / "other").code == 0


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"where": "prise > 1"}, 2),
        ({"source": {"parquet": "none/*.parquet"}}, 2),
        ({"budget": {"epsilon": 2e-6, "delta": 1e-45}}, 3),
        ({"budget": {"epsilon": 1.0, "delta": 1e-6, "runs": 2}}, 2),
    ],
)
def test_a_run_that_is_refused_leaves_no_ledger(fresh: Shop, call: Call, changes: dict[str, object], code: int) -> None:
    said = call("run", fresh.write(**changes), "--output", fresh.folder / "a" / "out")
    assert (said.code, said.out) == (code, "")
    assert fresh.left() == []
    assert not (fresh.folder / DEFAULT_NAME).exists()


@pytest.mark.parametrize("ledger", [None, "roomy"])
def test_an_output_with_another_release_is_refused_before_anything_is_charged(
    shop: Shop, call: Call, ledger: str | None
) -> None:
    out = shop.folder / "out"
    assert call("run", shop.job, "--output", out, "--run-id", "one", "--ledger", "none").code == 0
    if ledger is None:
        shop.without_ledger()
    before = everything(shop.folder)
    said = call("run", shop.job, "--output", out, "--run-id", "two")
    assert (said.code, said.out) == (2, "")
    assert "another run's release" in said.err
    assert everything(shop.folder) == before


def test_an_output_that_cannot_be_made_is_refused_before_anything_is_charged(shop: Shop, call: Call) -> None:
    (shop.folder / "data" / "file").touch()
    before = everything(shop.folder)
    for place in ("data/file/out", "/proc/none/out"):
        said = call("run", shop.job, "--output", shop.folder / place)
        assert (said.code, said.out) == (2, "")
        assert "cannot be created" in said.err
    assert everything(shop.folder) == before
    assert ledger_of(shop).state.runs == {}


def test_a_plan_above_the_accounts_cap_is_refused_with_what_would_fit(fresh: Shop, call: Call) -> None:
    assert call("ledger", "init", fresh.job, "--epsilon", "2", "--delta", "1e-5").code == 0
    before = everything(fresh.folder)
    said = call("run", fresh.job, "--output", fresh.folder / "a" / "out")
    assert (said.code, said.out) == (3, "")
    assert "at most epsilon 2 " in said.err
    assert everything(fresh.folder) == before
    assert fresh.left() == []
