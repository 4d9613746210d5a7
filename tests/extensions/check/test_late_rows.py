"""Of a window that was released, a check says how many rows came in files after that, and that another run overlaps the first."""

import json
import pathlib
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.extensions.check.test_counts import Call, asked
from tests.jobs.conftest import Said, Shop

WEEK = {
    "window": {"column": "paid_at", "days": 7, "param": "week"},
    "params": {"week": {"type": "date"}},
    "dataset": "weeks",
    "where": "price > 4",
}
THIS = ("--param", "week=2025-01-13")


@pytest.fixture
def weekly(shop: Shop) -> Shop:
    shop.write(**WEEK)
    return shop


def checked(call: Call, shop: Shop, *more: object) -> dict[str, Any]:
    folder = shop.folder / f"checked{len(list(shop.folder.iterdir()))}"
    said: Said = call("check", shop.job, *(more or THIS), "--output", folder)
    assert said.code == 0, said.err
    found: dict[str, Any] = json.loads((folder / "PRIVATE-check.json").read_text())
    return found


def released(call: Call, shop: Shop, run_id: str = "w3") -> None:
    assert call("run", shop.job, *THIS, "--run-id", run_id, "--output", shop.folder / f"out-{run_id}").code == 0


def some_file(shop: Shop) -> pathlib.Path:
    return min((shop.folder / "data").iterdir())


def test_rows_of_files_that_came_after_the_release_are_counted(weekly: Shop, call: Call) -> None:
    released(call, weekly)
    rows = pa.parquet.read_table(some_file(weekly)).slice(0, 700)
    columns = rows.schema.get_field_index("customer")
    holed = pa.array([None] * 50 + rows.column("customer").to_pylist()[50:], rows.schema.field("customer").type)
    late = rows.set_column(columns, rows.schema.field("customer"), holed)
    pa.parquet.write_table(late, weekly.folder / "data" / "zz-late.parquet")
    found = checked(call, weekly)
    query = """SELECT count(*) FROM t WHERE paid_at >= DATE '2025-01-13' AND paid_at < DATE '2025-01-20' AND price > 4
        AND customer IS NOT NULL"""
    (expected,) = asked(query, t=late)
    every = [pa.parquet.read_table(path) for path in sorted((weekly.folder / "data").iterdir())]
    (whole,) = asked(query, t=pa.concat_tables(every))
    assert 0 < expected < 700
    assert found["released"]["rows"] == {"number": expected, "share": pytest.approx(expected / whole)}
    assert (found["released"]["run"], found["released"]["files"]) == ("w3", ["data/zz-late.parquet"])
    (told,) = [text for text in found["advice"] if "came after its release by run w3" in text]
    assert told.startswith(f"{expected:,.0f} rows of this window")
    assert "data/zz-late.parquet. They are in no release." in told


def test_another_run_of_a_released_window_is_said_to_overlap_it(weekly: Shop, call: Call) -> None:
    assert checked(call, weekly)["released"] is None
    released(call, weekly)
    found = checked(call, weekly)
    assert (found["released"]["files"], found["released"]["rows"]["number"]) == ([], 0)
    (told,) = [text for text in found["advice"] if text.startswith("This window was released by run w3 on ")]
    assert "no file has come since; rows that were added to a file are not told" in told
    assert "Another run of it overlaps that" in told


def test_another_window_has_no_release(weekly: Shop, call: Call) -> None:
    released(call, weekly)
    assert checked(call, weekly, "--param", "week=2025-01-20")["released"] is None


def test_files_whose_names_the_ledger_does_not_hold_are_not_told(
    weekly: Shop, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dp_pipelines.ledger.read_files.MOST_NAMES", 1)
    released(call, weekly)
    found = checked(call, weekly)
    assert found["released"]["files"] is None
    assert any("which of its files came later is not known" in text for text in found["advice"])


def test_what_a_check_prints_does_not_depend_on_late_rows(weekly: Shop, call: Call) -> None:
    released(call, weekly)
    said = []
    for number in (1, 2):
        rows = pa.parquet.read_table(some_file(weekly)).slice(0, 600 * number)
        pa.parquet.write_table(rows, weekly.folder / "data" / "zz-late.parquet")
        said.append(call("check", weekly.job, *THIS, "--output", weekly.folder / "same"))
        (weekly.folder / "same").rename(weekly.folder / f"kept{number}")
    assert (said[0].code, said[0].out, said[0].err) == (said[1].code, said[1].out, said[1].err)
