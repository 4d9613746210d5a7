"""Runs whose CSV is for spreadsheets: what is published, what is refused before a charge, and what stays as it was.

In: the shop. Out: published folders, exit codes. Holds: runs are real. Not covered: cells (`tests/jobs/outputs`).
"""

import csv
import json
import pathlib
import re
from collections.abc import Callable
from typing import Any

import duckdb
import pytest
import yaml

from dp_pipelines.jobs.outputs import spreadsheet_csv
from dp_pipelines.jobs.outputs.spreadsheet_csv import MARK
from dp_pipelines.jobs.request.request import check
from dp_pipelines.jobs.spec import job_file
from dp_pipelines.report.numbers import rounded_cells
from tests.helpers.extension_folders import needs
from tests.helpers.source import ROOT
from tests.jobs.conftest import Said, Shop, stage

Call = Callable[..., Said]
ALL = {"rounded": True, "interval": True, "wide": True, "delimiter": ";", "bom": True}
BOTH_KEYS = stage(partition_by=["product", "store"])


def options(**said: object) -> dict[str, object]:
    """`outputs:` with these options of CSV."""
    return {"files": [{"csv": said}]}


def read(path: pathlib.Path, delimiter: str = ",") -> list[list[str]]:
    """All lines of a file, without its mark."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        return list(csv.reader(file, delimiter=delimiter, strict=True))


def run(shop: Shop, call: Call, name: str, *more: object) -> Said:
    return call("run", shop.job, "--output", shop.folder / name, "--run-id", "one", *more)


def test_a_wide_file_says_what_the_table_of_record_does(shop: Shop, call: Call) -> None:
    shop.write(stages={"weekly": BOTH_KEYS}, outputs=options(**ALL))
    said = run(shop, call, "one")
    assert (said.code, said.err) == (0, "")
    out = shop.folder / "one"
    assert (out / "weekly.csv").read_bytes().startswith(MARK)
    header, *body = read(out / "weekly.csv", ";")
    names = [f"{metric}{end}" for metric in ("orders", "revenue") for end in ("", "_from", "_to")]
    assert header == ["product", *(f"{name}: {store}" for name in names for store in (1, 2, 3))]
    released = duckdb.sql(f"FROM '{out / 'weekly.parquet'}'").fetchall()
    assert len(released) == 15
    for product, store, orders, orders_stddev, revenue, revenue_stddev in released:
        (row,) = [dict(zip(header, cells, strict=True)) for cells in body if cells[0] == product]
        for name, value, stddev, whole in (
            ("orders", orders, orders_stddev, True),
            ("revenue", revenue, revenue_stddev, False),
        ):
            cells = rounded_cells(value, stddev, whole=whole)
            assert [row[f"{name}{end}: {store}"] for end in ("", "_from", "_to")] == [cells[0], *cells[2:]]
    listed = json.loads((out / "manifest.json").read_text())
    assert "weekly.csv" in listed["files"]
    assert "copies" not in listed
    frame = duckdb.sql(f"SELECT sum(\"orders: 1\") FROM read_csv('{out / 'weekly.csv'}', delim = ';')").fetchall()
    assert frame == [(sum(int(row[1]) for row in body),)]


def test_the_same_run_has_the_same_bytes_wherever_it_is_published_again(shop: Shop, call: Call) -> None:
    shop.write(stages={"weekly": BOTH_KEYS}, outputs={"files": ["jsonl", {"csv": ALL}]})
    assert run(shop, call, "one").code == run(shop, call, "again").code == 0
    files = {path.name: path.read_bytes() for path in (shop.folder / "one").iterdir()}
    assert files == {path.name: path.read_bytes() for path in (shop.folder / "again").iterdir()}
    (shop.folder / "one" / "weekly.csv").unlink()
    assert run(shop, call, "third").code == 0
    assert (shop.folder / "third" / "weekly.csv").read_bytes() == files["weekly.csv"]
    assert shop.charged() == 1
    for other in (None, options(), options(**{**ALL, "bom": False})):
        shop.write(stages={"weekly": BOTH_KEYS}, outputs=other)
        assert run(shop, call, "other").code == 2, "its formats belong to what a run id fixes"
    assert shop.charged() == 1


def test_a_job_without_the_options_is_the_run_that_it_was(shop: Shop) -> None:
    def content(outputs: object) -> str:
        return check(job_file.load(str(shop.write(outputs=outputs))), ()).content

    def asked(outputs: object) -> str:
        return check(job_file.load(str(shop.write(outputs=outputs))), ()).asked

    assert content(None) == "2412cd2cd50d466fce9556e1e3766d635f11bba09538a96e313c9fe1fac574a5"
    assert content({"files": ["csv"]}) == "233ce18707bc75872070f0a019206d9bb5f7f7f8adb96604c0de3d6e6a865a41"
    assert asked({"files": ["csv"]}) == "910bc8c253ee32373bc2ac7d1c81224dd95315286001804f3514dab4a118c1e1"
    assert content({"files": ["csv"]}) == content(options()) == content(options(rounded=False, delimiter=","))
    assert content({"files": ["jsonl", "csv"]}) == content({"files": [{"csv": {}}, "jsonl"]})
    assert len({content(each) for each in (None, options(), {"files": ["jsonl"]})}) == 3
    assert len({content(each) for each in (options(), options(rounded=True), options(bom=True))}) == 1, "presentation"
    assert content({"files": ["jsonl", {"csv": {"bom": True}}]}) == content(
        {"files": [{"csv": {"bom": True}}, "jsonl"]}
    )
    assert asked(None) == asked(options(rounded=True, interval=True)), "options cost nothing and are no part of a plan"


REFUSED: dict[str, tuple[dict[str, object], dict[str, object], str, str]] = {
    "one key": ({"wide": True}, {}, "outputs.files.0.csv.wide", "has fewer than two columns in partition_by"),
    "no key": (
        {"wide": True}, {"partition_by": [], "bounds": {"max_contributions": 4}},
        "outputs.files.0.csv.wide", "has fewer than two columns in partition_by",
    ),
    "levels": (
        {"wide": True}, {"partition_by": ["product", "store"], "rollup": [["product"], ["product", "store"]]},
        "outputs.files.0.csv.wide", "has levels of a rollup",
    ),
    "no metric": (
        {"wide": True}, {"partition_by": ["product", "store"], "metrics": {}},
        "outputs.files.0.csv.wide", "has no metric",
    ),
    "too many columns": (
        {"wide": True},
        {"partition_by": ["product", "store"], "partitions": {"public": [["p0", n] for n in range(501)]}},
        "outputs.files.0.csv.wide", "would have 1,003 columns, and at most 1,000",
    ),
    "headings that could be equal": (
        {"wide": True},
        {"partition_by": ["product", "store"], "metrics": {"a": {"kind": "count"}, "a: b": {"kind": "count"}}},
        "outputs.files.0.csv.wide", "has column 'a: b', which a column of the numbers 'a' could be called, too",
    ),
    "a name that is there": (
        {"interval": True}, {"metrics": {"orders": {"kind": "count"}, "orders_from": {"kind": "count"}}},
        "outputs.files.0.csv.interval", "would publish column 'orders_from' twice",
    ),
    "a key of that name": (
        {"interval": True}, {"partition_by": ["ORDERS_TO"]},
        "outputs.files.0.csv.interval", "would publish column 'ORDERS_TO' twice",
    ),
    "a letter": ({"delimiter": "x"}, {}, "outputs.files.0.csv.delimiter", "must be one ASCII character"),
    "a point": ({"delimiter": "."}, {}, "outputs.files.0.csv.delimiter", "must be one ASCII character"),
    "two characters": ({"delimiter": ";;"}, {}, "outputs.files.0.csv.delimiter", 'write e.g. delimiter: ";"'),
    "a number": ({"delimiter": 1}, {}, "outputs.files.0.csv.delimiter", "must be text"),
    "a word": ({"rounded": "yes"}, {}, "outputs.files.0.csv.rounded", "must be true or false"),
    "an unknown key": ({"round": True}, {}, "outputs.files.0.csv.round", "did you mean 'rounded'?"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_written_is_refused_before_a_charge(shop: Shop, call: Call, name: str) -> None:
    said_options, changes, field, message = REFUSED[name]
    shop.write(stages={"weekly": stage(**changes)}, outputs=options(**said_options), columns={"ORDERS_TO": "store + 1"})
    for command in (("plan", shop.job), ("run", shop.job, "--output", shop.folder / "out")):
        said = call(*command)
        assert said.code == 2
        assert f"{field}: " in said.err
        assert message in said.err
    assert shop.charged() == 0
    assert not (shop.folder / "out").exists()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["csv", {"csv": {"bom": True}}], "outputs.files: names a format twice"),
        ([{"csv": {}}, {"csv": {"bom": True}}], "outputs.files: names a format twice"),
        ([{"jsonl": {}}], "outputs.files.0.jsonl: unknown key"),
        ([{"csv": None}], "outputs.files.0.csv: must be a mapping"),
        ([{}], "outputs.files.0.csv: is missing"),
        ([3], "outputs.files.0: must be one of csv, jsonl"),
        (["tsv"], "outputs.files.0: must be one of csv, jsonl"),
    ],
)
def test_another_entry_is_refused(shop: Shop, call: Call, files: list[Any], message: str) -> None:
    shop.write(outputs={"files": files})
    said = call("plan", shop.job)
    assert said.code == 2
    assert message in said.err


def test_a_list_of_which_rows_are_chosen_is_judged_by_the_rows(shop: Shop, call: Call) -> None:
    listed = {"public": [[f"p{n % 5}", n] for n in range(501)]}
    weekly = stage(partition_by=["product", "store"], partitions=listed, having="orders > 50")
    shop.write(stages={"weekly": weekly}, outputs=options(wide=True))
    assert run(shop, call, "one").code == 0
    assert read(shop.folder / "one" / "weekly.csv")[0][:2] == ["product", "orders: 1"]


def test_a_grid_that_is_too_wide_is_written_row_by_row_with_a_note(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spreadsheet_csv, "MOST_COLUMNS", 6)
    shop.write(stages={"weekly": BOTH_KEYS}, outputs=options(wide=True, rounded=True))
    said = run(shop, call, "one")
    assert said.code == 0
    out = shop.folder / "one"
    assert read(out / "weekly.csv")[0] == ["product", "store", "orders", "orders_stddev", "revenue", "revenue_stddev"]
    note = "is not wide: it would have 7 columns, and at most 6 are written"
    assert json.loads((out / "manifest.json").read_text())["copies"] == {"weekly.csv": note}
    assert f"weekly.csv {note}" in said.out


@needs("describe")
def test_made_up_rows_are_in_no_text_and_describe_names_the_format(shop: Shop, call: Call) -> None:
    weekly = stage(partitions={"public": [["p0"], ["p1"]]})
    shop.write(
        outputs=options(rounded=True), expect={"users": 100, "rows_per_partition": 200}, stages={"weekly": weekly}
    )
    assert call("run", shop.job, "--output", shop.folder / "out", "--synthetic").code == 0
    assert not list((shop.folder / "out").glob("*.csv"))
    page = shop.folder / "assessment.html"
    assert call("describe", shop.job, "--output", page).code == 0
    assert "the same tables as csv" in page.read_text()


def test_a_key_that_text_cannot_hold_is_refused_as_by_csv_without_options(shop: Shop, call: Call) -> None:
    weekly = stage(partition_by=["store", "blob"])
    shop.write(stages={"weekly": weekly}, columns={"blob": "CAST(product AS BLOB)"}, outputs=options(**ALL))
    said = call("plan", shop.job)
    assert said.code == 2
    assert "column 'blob' of table 'weekly' is binary, which CSV cannot hold; cast it first" in said.err


def test_a_comparison_has_its_digits_too(shop: Shop, call: Call) -> None:
    weekly = stage(
        partitions={"public": [["p0"], ["p1"]]},
        bounds={"max_partitions_contributed": 1, "max_contributions_per_partition": 3},
        compare={"by": "product", "baseline": "p0", "metrics": ["orders"]},
        metrics={"orders": {"kind": "count"}},
    )
    shop.write(stages={"weekly": weekly}, outputs=options(rounded=True, interval=True))
    assert run(shop, call, "one").code == 0
    header, *body = read(shop.folder / "one" / "weekly.compare.csv")
    assert header[:3] == ["product", "metric", "value"]
    assert header == duckdb.sql(f"FROM '{shop.folder / 'one' / 'weekly.compare.parquet'}'").columns, (
        "interval adds none"
    )
    assert body
    assert all(len(cell) <= 7 for row in body for cell in row[2:])
    assert read(shop.folder / "one" / "weekly.csv")[0] == [
        "product", "orders", "orders_stddev", "orders_from", "orders_to",
    ]  # fmt: skip


def test_the_options_on_the_page_are_a_job(shop: Shop) -> None:
    (text,) = re.findall(r"^outputs: \{files: \[\{csv: .*$", (ROOT / "docs" / "outputs.md").read_text(), re.MULTILINE)
    shop.write(stages={"weekly": BOTH_KEYS}, **yaml.safe_load(text))
    found = check(job_file.load(str(shop.job)), ()).outputs.spreadsheets["weekly"]
    assert (found.rounded, found.interval, found.wide, found.delimiter, found.bom) == (True, True, True, ";", True)


def test_decimal_commas_say_the_same_numbers_and_need_another_delimiter(shop: Shop, call: Call) -> None:
    shop.write(stages={"weekly": BOTH_KEYS}, outputs=options(delimiter=";", decimal=","))
    said = run(shop, call, "one")
    assert (said.code, said.err) == (0, "")
    out = shop.folder / "one"
    header, *body = read(out / "weekly.csv", ";")
    place = header.index("revenue")
    wanted = duckdb.sql(f"SELECT revenue FROM '{out / 'weekly.parquet'}'").fetchall()
    assert [float(cells[place].replace(",", ".")) for cells in body] == [number for (number,) in wanted]
    assert any("," in cells[place] for cells in body)
    shop.write(stages={"weekly": BOTH_KEYS}, outputs=options(decimal=","))
    refused = call("plan", shop.job)
    assert refused.code == 2
    assert (
        "outputs.files.0.csv.decimal: must not be the delimiter, and both are ','; add delimiter: \";\"" in refused.err
    )
