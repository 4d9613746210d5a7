"""`dp-pipelines tune`: what it writes is private and says so, what it prints tells nothing of rows, what it suggests plans."""

import json
import pathlib
import stat
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet
import pytest
import yaml

from dp_pipelines.extensions.tune import tune, tune_grid
from dp_pipelines.jobs.run import pipelines
from dp_pipelines.jobs.spec.job_file import load
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from tests.jobs.conftest import Said, Shop, purchases, stage

Call = Callable[..., Said]

GRID = ["--grid", "bounds.max_partitions_contributed=1,2,5", "--grid", "metrics.revenue.max_value=5,20"]


def tuned(call: Call, shop: Shop, *more: object, output: str = "tuning", grid: list[str] = GRID) -> Said:
    return call("tune", shop.job, "--output", shop.folder / output, *grid, *more)


def in_private(folder: pathlib.Path, name: str) -> str:
    return (folder / f"PRIVATE-{name}").read_text()


def test_a_private_folder_is_written_and_says_so_everywhere(shop: Shop, call: Call) -> None:
    said = tuned(call, shop)
    assert said.code == 0, said.err
    folder = shop.folder / "tuning"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    names = sorted(path.name for path in folder.iterdir())
    assert names == [f"PRIVATE-{n}" for n in ("errors.parquet", "recommendation.json", "report.html", "suggested.yaml")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    page = in_private(folder, "report.html")
    assert page.count("PRIVATE. Do not publish.") == 2
    assert "<title>PRIVATE" in page
    assert in_private(folder, "suggested.yaml").startswith("# PRIVATE")
    assert "name the job's ledger with --ledger" in in_private(folder, "suggested.yaml")
    assert json.loads(in_private(folder, "recommendation.json"))["private"] is True
    assert "PRIVATE" in said.out
    assert shop.left() == ["tuning", *(f"tuning/{name}" for name in names)]


def test_nothing_that_is_printed_depends_on_a_row(shop: Shop, call: Call) -> None:
    """The same command over other rows, many more of them, and over none at all: byte for byte the same words."""
    few = purchases(9).slice(0, 40)
    others = {
        "others": [purchases(5, 12_000), few],
        "one heavy customer": [pa.concat_tables([few.take([3] * 5000), few]), few],
        "nothing but zeros": [
            table.set_column(4, "price", pa.array(np.zeros(len(table)))) for table in [purchases(5), few]
        ],
        "beyond all drawing": [
            table.set_column(4, "price", pa.array(np.full(len(table), 1e-305))) for table in [purchases(5), few]
        ],
        "none": [purchases(5).slice(0, 0)] * 2,
    }
    plots = ["--grid", "bounds.max_contributions_per_partition=1,3", "--goal", "minimize relative_error(revenue)"]
    first = tuned(call, shop, *plots)
    found = [in_private(shop.folder / "tuning", "recommendation.json")]
    for name, tables in others.items():
        for number, table in enumerate(tables):
            pa.parquet.write_table(table, shop.folder / "data" / f"part-{number}.parquet")
        assert tuned(call, shop, *plots, output=name) == Said(
            first.code, first.out.replace("/tuning\n", f"/{name}\n"), first.err
        )
        found.append(in_private(shop.folder / name, "recommendation.json"))
    assert len(set(found)) == 6, "the rows of this test ought to make a difference somewhere"
    assert tuned(call, shop, "--json", output="json").out.count("configuration") == 1


def test_the_suggested_job_plans_and_runs_as_it_lies_there(shop: Shop, call: Call) -> None:
    text = shop.job.read_text().replace("stages:", "# what is published each week\nstages:")
    shop.job.write_text(text)
    assert tuned(call, shop, "--goal", "minimize relative_error(revenue)").code == 0
    path = shop.folder / "tuning" / "PRIVATE-suggested.yaml"
    chosen = json.loads(in_private(shop.folder / "tuning", "recommendation.json"))["setting"]
    job = yaml.safe_load(path.read_text())
    of_stage = job["stages"]["weekly"]
    assert of_stage["bounds"]["max_partitions_contributed"] == chosen["bounds.max_partitions_contributed"]
    assert of_stage["metrics"]["revenue"]["max_value"] == chosen["metrics.revenue.max_value"]
    assert "# what is published each week" in path.read_text()
    planned = call("plan", path, "--json")
    assert planned.code == 0, planned.err
    ran = call("run", path, "--output", shop.folder / "out", "--ledger", "none")
    assert ran.code == 0, ran.err


@pytest.mark.parametrize("rows", [[], ["--synthetic", "--users", "500", "--partitions", "40"]])
def test_a_job_of_several_runs_is_tuned_for_one_of_them(shop: Shop, call: Call, rows: list[str]) -> None:
    shop.write(budget={"epsilon": 8.0, "delta": 1e-5, "runs": 3})
    said = tuned(call, shop, *rows)
    assert said.code == 0, said.err
    suggested = "suggested.yaml" if rows else "PRIVATE-suggested.yaml"
    assert yaml.safe_load((shop.folder / "tuning" / suggested).read_text())["budget"]["runs"] == 3


def test_the_ledger_notes_the_look_and_charges_nothing(shop: Shop, call: Call) -> None:
    before = json.loads(call("ledger", "show", shop.job, "--json").out)["accounts"][0]["budgets"]
    assert tuned(call, shop).code == 0
    shown = call("ledger", "show", shop.job)
    assert "tuned on the raw rows" in shown.out
    account = json.loads(call("ledger", "show", shop.job, "--json").out)["accounts"][0]
    assert account["budgets"] == before
    (noted,) = account["tunings"]
    assert (noted["stage"], noted["configurations"]) == ("weekly", 7)
    exported = call("ledger", "export", shop.job, "--format", "html").out
    assert "data tuned" in exported
    assert call("ledger", "verify", shop.job).code == 0


def test_a_look_is_noted_before_anything_is_read(shop: Shop, call: Call) -> None:
    broken = bytearray((shop.folder / "data" / "part-1.parquet").read_bytes())
    broken[100:2000] = bytes(1900)
    (shop.folder / "data" / "part-1.parquet").write_bytes(bytes(broken))
    said = tuned(call, shop)
    assert said.code == 1
    assert "a row group cannot be read" in said.err
    assert shop.left() == []
    ledger = Ledger.open(str(shop.folder / DEFAULT_NAME))
    assert len(ledger.state.tunings) == 1
    ledger.close()


def test_without_a_ledger_one_is_made_but_no_account(shop: Shop, call: Call) -> None:
    shop.without_ledger()
    for beside in shop.folder.glob(f"{DEFAULT_NAME}-*"):
        beside.unlink()
    assert tuned(call, shop).code == 0
    ledger = Ledger.open(str(shop.folder / DEFAULT_NAME))
    assert not ledger.state.accounts
    assert [tuning.account for tuning in ledger.state.tunings] == ["shop"]
    ledger.close()
    assert "no account yet" in call("ledger", "show", shop.job).out


def test_a_public_sample_is_read_instead_and_nothing_is_noted(shop: Shop, call: Call) -> None:
    pa.parquet.write_table(purchases(77), shop.folder / "sample.parquet")
    damaged = shop.folder / "data" / "part-0.parquet"
    damaged.write_bytes(b"whoever reads this fails")
    said = tuned(call, shop, "--sample", shop.folder / "sample.parquet")
    assert said.code == 0, said.err
    folder = shop.folder / "tuning"
    assert sorted(path.name for path in folder.iterdir())[1] == "recommendation.json"
    assert "PRIVATE" not in said.out + (folder / "report.html").read_text() + (folder / "suggested.yaml").read_text()
    assert "that the person who ran it declared public" in (folder / "report.html").read_text()
    assert yaml.safe_load((folder / "suggested.yaml").read_text())["source"]["parquet"].endswith("data/*.parquet")
    ledger = Ledger.open(str(shop.folder / DEFAULT_NAME))
    assert not ledger.state.tunings
    ledger.close()


@pytest.mark.parametrize("linked", [False, True])
def test_the_rows_of_the_job_are_no_public_sample(shop: Shop, call: Call, linked: bool) -> None:
    sample = shop.folder / "data" / "part-1.parquet"
    if linked:
        sample = shop.folder / "sample.parquet"
        sample.symlink_to(shop.folder / "data" / "part-1.parquet")
    said = tuned(call, shop, "--sample", sample)
    assert said.code == 2
    assert f"--sample {sample}: names files of the job's own source" in said.err


def test_a_column_that_the_sample_lacks_is_said_of_the_sample(shop: Shop, call: Call) -> None:
    pa.parquet.write_table(purchases(77).drop_columns("price"), shop.folder / "sample.parquet")
    said = tuned(call, shop, "--sample", shop.folder / "sample.parquet")
    assert said.code == 2
    assert f"error: --sample {shop.folder / 'sample.parquet'}: " in said.err


def test_rows_of_another_account_are_not_looked_at_under_a_new_name(shop: Shop, call: Call) -> None:
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0
    shop.write(dataset="another")
    said = tuned(call, shop)
    assert said.code == 2
    assert "belongs to the account 'shop'" in said.err
    assert not (shop.folder / "tuning").exists()


def test_epsilons_of_a_grid_without_the_jobs_own_are_compared(shop: Shop, call: Call) -> None:
    """The job as it stands is always among all: its epsilon, which nobody asked about, would win each time."""
    more = ["--grid", "budget.epsilon=2,4", "--grid", "bounds.max_partitions_contributed=1,5"]
    assert tuned(call, shop, grid=more).code == 0
    assert json.loads(in_private(shop.folder / "tuning", "recommendation.json"))["setting"]["budget.epsilon"] == 2
    assert tuned(call, shop, output="own", grid=["--grid", "budget.epsilon=2,8"]).code == 0
    assert json.loads(in_private(shop.folder / "own", "recommendation.json"))["setting"]["budget.epsilon"] == 8


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            ["--grid", "bounds.max_partitions=1"],
            "is not a setting that can be varied; did you mean 'bounds.max_partitions_co",
        ),
        (["--grid", "metrics.profit.max_value=1"], "does not name a metric"),
        (["--grid", "privacy_unit=a,b"], "is not a setting that can be varied"),
        (["--grid", "metrics.revenue.min_value=30"], "must not be above max_value"),
        (["--grid", "bounds.max_contributions_per_partition=0"], "job.yaml:"),
        (["--grid", "budget.epsilon=1,1"], "must list one or more distinct"),
        (["--grid", "budget.epsilon=1,1.0"], "must list one or more distinct"),
        (["--grid", "budget.epsilon=true"], "must list one or more distinct"),
        (["--grid", "budget.epsilon="], "must list one or more distinct"),
        (["--grid", "budget.epsilon=[1"], "is not valid YAML"),
        (["--grid", "no such file"], "is not a readable file"),
        (["--grid", "partitions.private.strategy=sips"], "selects in several rounds"),
        (["--grid", "partitions.private.strategy=best"], "must be one of"),
        (["--grid", "bounds.max_partitions_contributed=7"], "is given twice"),
        (["--grid", "budget.epsilon=" + ",".join(map(str, range(1, 500)))], "configurations, more than"),
        (["--goal", "minimize wealth"], "does not name a measure"),
        (["--stage", "monthly"], "is not an aggregate stage"),
        (["--sample", "nowhere/*.parquet"], "--sample nowhere/*.parquet: matches no file"),
        (["--sample", "gs://nowhere/*.parquet"], "--sample gs://nowhere/*.parquet: "),
        (["--runner", "dataflow"], "cannot keep private output"),
        (["--unknown=1"], ""),
    ],
)
def test_what_is_wrong_by_public_facts_is_refused_before_anything_is_noted(
    shop: Shop, call: Call, more: list[str], words: str
) -> None:
    said = tuned(call, shop, *more)
    assert said.code == 2, said
    assert words in said.err
    assert shop.left() == []
    ledger = Ledger.open(str(shop.folder / DEFAULT_NAME))
    assert not ledger.state.tunings
    ledger.close()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"bounds": {"max_contributions": 4}}, "bounds the total number of rows"),
        ({"metrics": {"spread": {"kind": "variance", "column": "price", "min_value": 0, "max_value": 1}}}, "has no metric whose"),
        ({"metrics": {"revenue": {"kind": "sum", "column": "price", "min_value": 0, "max_value": "auto", "within": [0, 9]}}},
         "has bounds that the run chooses"),
    ],
)  # fmt: skip
def test_a_stage_that_cannot_be_tuned_is_refused(shop: Shop, call: Call, changes: dict[str, Any], words: str) -> None:
    shop.write(stages={"weekly": stage(**changes)})
    said = tuned(call, shop, grid=["--grid", "budget.epsilon=1,2"])
    assert said.code == 2, said
    assert words in said.err


def test_a_metric_of_which_nothing_is_predicted_keeps_its_share(shop: Shop, call: Call) -> None:
    spread = {"kind": "variance", "column": "price", "min_value": 0, "max_value": 20}
    metrics: Any = stage()["metrics"]
    shop.write(stages={"weekly": stage(metrics={**metrics, "spread": spread})})
    assert tuned(call, shop).code == 0
    page = in_private(shop.folder / "tuning", "report.html")
    assert "No predictions for <bdi>spread</bdi>" in page


def test_a_metric_of_which_nothing_is_predicted_may_read_what_is_no_number(shop: Shop, call: Call) -> None:
    notes = {"kind": "distinct_count", "column": "note"}
    metrics: Any = stage()["metrics"]
    shop.write(stages={"weekly": stage(metrics={**metrics, "notes": notes})})
    said = tuned(call, shop)
    assert said.code == 0, said.err
    assert "No predictions for <bdi>notes</bdi>" in in_private(shop.folder / "tuning", "report.html")
    made = tuned(call, shop, "--synthetic", "--users", "200", output="made")
    assert made.code == 0, made.err


def test_a_release_holds_no_private_folder(shop: Shop, call: Call) -> None:
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0
    said = tuned(call, shop, output="out/tuning")
    assert said.code == 2
    assert "is inside a release" in said.err
    assert tuned(call, shop, output="out").code == 2
    (shop.folder / "out" / "below").mkdir()
    (shop.folder / "elsewhere").symlink_to(shop.folder / "out" / "below")
    assert "is inside a release" in tuned(call, shop, output="elsewhere/tuning").err


def test_a_grid_from_a_file_varies_paths_together(shop: Shop, call: Call) -> None:
    mean = {"kind": "mean", "column": "price", "min_value": 0, "max_value": 20}
    metrics: Any = stage()["metrics"]
    shop.write(stages={"weekly": stage(metrics={**metrics, "mean": mean})})
    grid = shop.folder / "grid.yaml"
    grid.write_text(
        "'metrics.revenue.max_value, metrics.mean.max_value': [5, 20]\nbudget.epsilon: [1, 8]\n"
        "bounds.max_partitions_contributed: [1, 3]\nbounds.max_contributions_per_partition: [1, 2]\n"
        "partitions.private.strategy: [auto, laplace]\n"
    )
    said = tuned(call, shop, "--goal", "relative_error(mean) <= 0.2", grid=["--grid", str(grid)])
    assert said.code == 0, said.err
    errors = pa.parquet.read_table(shop.folder / "tuning" / "PRIVATE-errors.parquet")
    assert len(set(errors["configuration"].to_pylist())) == 32
    assert errors["metrics.revenue.max_value"].to_pylist() == errors["metrics.mean.max_value"].to_pylist()
    page = in_private(shop.folder / "tuning", "report.html")
    for heading in ("Privacy against utility", "Clipping against error: mean", "The two bounds"):
        assert heading in page
    assert page.count("<svg role") == 4
    grid.unlink()


def test_the_job_as_it_stands_is_in_the_grid_once(shop: Shop) -> None:
    from dp_pipelines.jobs.request.request import check

    request = check(load(str(shop.job)), [])
    numbers = {}
    for text in ("budget.epsilon=1,8", "budget.epsilon=1,2"):
        found = tune_grid.options(request, "weekly", tune_grid.read([text]))
        numbers[text] = [(option.number, option.setting) for option in found]
    assert [setting for _, setting in numbers["budget.epsilon=1,8"]] == [(("budget.epsilon", v),) for v in (1, 8)]
    assert numbers["budget.epsilon=1,2"][0] == (0, ())


def test_no_text_of_a_failure_quotes_a_row(shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: object) -> None:
        raise ValueError("customer 17 paid 30")

    monkeypatch.setattr(tune.goals, "recommend", fails)
    said = tuned(call, shop)
    assert said.code == 1
    assert "17" not in said.err + said.out
    assert "the results could not be written" in said.err
    assert shop.left() == []


def test_a_failure_names_the_stage_alone() -> None:
    error = RuntimeError("customer 17 [while running 'Tune weekly/Tally']")
    request: Any = type("R", (), {"source": type("S", (), {"files": []})})
    told = str(pipelines.public_part(error, request, ["weekly"]))
    assert "in stage 'weekly'" in told
    assert "17" not in told


def test_predictions_follow_the_rows(shop: Shop, call: Call) -> None:
    """Not a constant page: where nobody is dropped or clipped, errors are the plan's noise."""
    assert tuned(call, shop, grid=["--grid", "bounds.max_partitions_contributed=5", "--grid",
                                   "bounds.max_contributions_per_partition=50"]).code == 0  # fmt: skip
    table = pa.parquet.read_table(shop.folder / "tuning" / "PRIVATE-errors.parquet")
    wide = table.filter(pa.compute.equal(table["bounds.max_contributions_per_partition"], "50"))
    for name in ("partitions_square", "rows_square", "choice_square"):
        assert np.allclose(wide[name].to_numpy(), 0, atol=1e-6)
    mine = table.filter(pa.compute.equal(table["bounds.max_contributions_per_partition"], "2"))
    assert sum(mine["rows_square"].to_pylist()) > 0


def test_a_budget_that_no_noise_can_meet_ends_with_the_code_of_budgets(shop: Shop, call: Call) -> None:
    said = tuned(call, shop, grid=["--grid", "budget.epsilon=0.000002", "--grid", "budget.runs=1000000"])
    assert said.code == 3
    assert "budget.epsilon=2e-06, budget.runs=1000000: " in said.err
    assert shop.left() == []
