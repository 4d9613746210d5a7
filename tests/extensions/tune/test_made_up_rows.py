"""`dp-pipelines tune --synthetic`: no row of the job decides anything, nothing is noted, and every page says what was assumed."""

import datetime
import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines.extensions.tune import made_up_rows
from dp_pipelines.extensions.tune.command import TUNE
from dp_pipelines.jobs.made_up.synthetic_rows import Assumptions, Values, mean
from dp_pipelines.jobs.request.request import Request, check
from dp_pipelines.jobs.spec.job_file import load
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from tests.jobs.conftest import Said, Shop, purchases, stage

Call = Callable[..., Said]

SMALL = ["--users", "500", "--partitions", "40"]
GRID = ["--grid", "bounds.max_partitions_contributed=1,2,5", "--grid", "metrics.revenue.max_value=5,20"]

WITH_EXPRESSIONS = {
    "where": "price > 5",
    "columns": {"week": "date_trunc('week', paid_at)"},
    "stages": {"weekly": stage(partition_by=["product", "week"])},
}


def made_up(call: Call, shop: Shop, *more: object, output: str = "tuning", small: Sequence[str] = SMALL) -> Said:
    return call("tune", shop.job, "--output", shop.folder / output, "--synthetic", *GRID, *small, *more)


def files(folder: pathlib.Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def noted(shop: Shop) -> int:
    ledger = Ledger.open(str(shop.folder / DEFAULT_NAME))
    try:
        return len(ledger.state.tunings)
    finally:
        ledger.close()


def write(shop: Shop, first: pa.Table, second: pa.Table) -> None:
    for number, table in enumerate((first, second)):
        pa.parquet.write_table(table, shop.folder / "data" / f"part-{number}.parquet")


def assumptions(shop: Shop, *options: str) -> tuple[Request, Assumptions]:
    """The assumptions of the shop's stage with some options."""
    import argparse

    parser = argparse.ArgumentParser()
    TUNE.add(lambda name, words, epilog: parser)
    given = parser.parse_args([str(shop.job), "--output", "x", "--synthetic", *options])
    request = check(load(str(shop.job)), [])
    return request, made_up_rows.assumptions(given, request, "weekly")


def test_no_row_of_the_job_decides_anything(shop: Shop, call: Call) -> None:
    """Byte for byte the same: over the shop, over a customer that is easily seen, over files without rows, over damaged rows."""
    shop.write(**WITH_EXPRESSIONS)
    first = made_up(call, shop)
    assert first.code == 0, first.err
    whole = files(shop.folder / "tuning")
    few = purchases(9).slice(0, 40)
    poison = few.set_column(few.schema.get_field_index("price"), "price", pa.array(np.full(40, 1e200)))
    seen = {
        "poison": (pa.concat_tables([poison.take([3] * 5000), few]), few),
        "no rows": (few.slice(0, 0), few.slice(0, 0)),
    }
    for name, tables in seen.items():
        write(shop, *tables)
        assert made_up(call, shop, output=name) == Said(0, first.out.replace("/tuning\n", f"/{name}\n"), first.err)
        assert files(shop.folder / name) == whole
    write(shop, purchases(1), purchases(2))
    broken = bytearray((shop.folder / "data" / "part-1.parquet").read_bytes())
    broken[100:2000] = bytes(1900)
    (shop.folder / "data" / "part-1.parquet").write_bytes(bytes(broken))
    assert made_up(call, shop, output="damaged").code == 0
    assert files(shop.folder / "damaged") == whole
    # The same comparison sees a row where rows are made otherwise.
    assert made_up(call, shop, output="others", small=["--users", "501", "--partitions", "40"]).code == 0
    assert files(shop.folder / "others").keys() == whole.keys()
    assert all(files(shop.folder / "others")[name] != content for name, content in whole.items())


def test_every_page_says_what_was_assumed_and_nothing_is_private_or_noted(shop: Shop, call: Call) -> None:
    said = made_up(call, shop, "--partitions-of-user", "2.5", "--value", "price=7")
    assert said.code == 0, said.err
    assert "synthetic rows" in said.out
    found = {name: content.decode("latin1") for name, content in files(shop.folder / "tuning").items()}
    assert sorted(found) == ["errors.parquet", "recommendation.json", "report.html", "suggested.yaml"]
    assert not any(
        "PRIVATE" in text or "that the person who ran it declared public" in text
        for text in [*found.values(), said.out]
    )
    assert "<title>tuning of shop, on synthetic rows</title>" in found["report.html"]
    assert found["report.html"].count("Computed from synthetic rows.") == 2
    assert "not from any data" in found["suggested.yaml"]
    for name in ("report.html", "suggested.yaml", "recommendation.json"):
        for words in ("500 users", "40 partitions", "median 2.5", "lognormal with median 7", "nothing is null"):
            assert words in found[name], (name, words)
    assert noted(shop) == 0
    assert shop.left() == ["tuning", *(f"tuning/{name}" for name in sorted(found))]
    assert call("plan", shop.folder / "tuning" / "suggested.yaml").code == 0


def test_json_says_that_the_rows_were_made_up(shop: Shop, call: Call) -> None:
    told = json.loads(made_up(call, shop, "--json").out)
    assert (told["synthetic"], told["private"], told["noted"]) == (True, False, False)


def test_rows_are_made_as_a_stage_reads_them(shop: Shop, call: Call) -> None:
    """Public partitions of dates and text, unit columns, a table that is joined: nothing of it is evaluated."""
    pa.parquet.write_table(
        pa.table({"store": pa.array([1], pa.int32()), "city": ["a"]}), shop.folder / "cities.parquet"
    )
    of_stage = stage(
        partition_by=["week", "city"],
        partitions={"public": [[datetime.date(2025, 1, 6), "a"], [datetime.date(2025, 1, 13), None]]},
        unit_columns={"visits": "count(*) OVER (PARTITION BY customer)"},
        where="visits > 1000000",
        metrics={
            "visits": {"kind": "sum", "column": "visits", "min_value": 0, "max_value": 30},
            "spread": {"kind": "variance", "column": "price", "min_value": 0, "max_value": 20},
        },
    )
    shop.write(
        columns={"week": "CAST(date_trunc('week', paid_at) AS DATE)"}, stages={"weekly": of_stage},
        lookup={"parquet": "cities.parquet", "on": "store"}, row_id="paid_at",
    )  # fmt: skip
    grid = ["--grid", "bounds.max_partitions_contributed=1,2"]
    said = call("tune", shop.job, "--output", shop.folder / "tuning", "--synthetic", "--users", "300", *grid)
    assert said.code == 0, said.err
    errors = pa.parquet.read_table(shop.folder / "tuning" / "errors.parquet")
    assert sum(errors.filter(errors["configuration"].to_numpy() == 0)["partitions"].to_pylist()) == 2
    assert 0 not in errors["size"].to_pylist()  # both partitions have users
    assert "from the public list" in (shop.folder / "tuning" / "report.html").read_text()


def test_what_is_not_given_follows_from_the_job_file(shop: Shop) -> None:
    sums = {"kind": "sum", "column": "price", "min_sum_per_partition": -6, "max_sum_per_partition": 6}
    shop.write(stages={"weekly": stage(metrics={"orders": {"kind": "count"}, "sums": sums})})
    _, found = assumptions(shop)
    assert (found.users, found.partitions, found.listed) == (10_000, 1_000, False)
    assert (found.partitions_of_user, found.rows_each) == (1.5, 1.0)
    assert found.values == {"price": Values(low=-6 / mean(1.0), high=6 / mean(1.0), middle=0)}


def test_what_is_expected_of_a_partition_is_what_partitions_have_on_average(shop: Shop) -> None:
    shop.write(expect={"users": 60, "rows_per_partition": 300})
    request, found = assumptions(shop, "--partitions", "50")
    table = pa.parquet.read_table(
        made_up_rows.made_up(request, "weekly", found, shop.folder / "rows.parquet").source.files[0]
    )
    assert table.num_rows / 50 == pytest.approx(300, rel=0.1)
    pairs = table.group_by(["customer", "product"]).aggregate([])
    assert pairs.num_rows / 50 == pytest.approx(60, rel=0.1)
    assert assumptions(shop, "--users", "70")[1].users == 70


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--sample", "x.parquet"], "--synthetic: cannot be combined with --sample; give only one"),
        (["--users", "0"], "--users: must be a whole number from 1 to 1000000; write e.g. --users 1000"),
        (["--users", "1.5"], "--users: must be a whole number from 1 to 1000000"),
        (["--users", "many"], "--users: must be a finite number below 1e+09; write a plain number"),
        (["--partitions", "nan"], "--partitions: must be a finite number"),
        (["--partitions", "2000000"], "--partitions: must be a whole number from 1 to 1000000"),
        (["--partitions-of-user", "-1"], "--partitions-of-user: must be a finite number above 0"),
        (["--rows-each", "inf"], "--rows-each: must be a finite number above 0"),
        (["--rows-each", "1e6"], "--synthetic: would make about"),
        (["--value", "price"], "--value price: must be COLUMN=MEDIAN"),
        (["--value", "prise=3"], "did you mean 'price'?"),
        (["--value", "price=0"], "--value price: must be a finite number above 0"),
    ],
)
def test_wrong_assumptions_are_refused_by_field_message_and_hint(
    shop: Shop, call: Call, more: list[str], words: str
) -> None:
    said = made_up(call, shop, *more)
    assert said.code == 2, said
    assert words in said.err
    assert shop.left() == []
    assert noted(shop) == 0


@pytest.mark.parametrize(
    "option", [["--users", "5"], ["--value", "price=1"], ["--rows-each", "2"], ["--partitions", "9"]]
)
def test_an_assumption_without_made_up_rows_is_refused(shop: Shop, call: Call, option: list[str]) -> None:
    said = call("tune", shop.job, "--output", shop.folder / "tuning", *GRID, *option)
    assert said.code == 2
    assert f"{option[0]}: describes synthetic rows; add --synthetic" in said.err
    assert noted(shop) == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"partitions": {"public": [["a"]]}}, "--partitions: applies to private partitions"),
        ({"partition_by": ["late"]}, "--partitions: is 40, and late can only have 2 distinct keys; give at most 2"),
        ({"partition_by": ["store"]}, "column 'store': belongs to both the privacy unit and the partition"),
    ],
)
def test_a_stage_that_assumptions_do_not_fit_is_refused(
    shop: Shop, call: Call, changes: dict[str, Any], words: str
) -> None:
    unit = ["customer", "store"]
    shop.write(columns={"late": "price > 3"}, privacy_unit=unit, stages={"weekly": stage(**changes)})
    said = made_up(call, shop)
    assert said.code == 2, said
    assert words in said.err
