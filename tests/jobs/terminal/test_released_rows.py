"""A published table in a terminal: the largest rows first, no number that is only noise, and what was chosen."""

import io
import pathlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from rich.console import Console

from dp_pipelines.jobs.terminal import released_rows, summary


def printed(folder: pathlib.Path, columns: dict[str, Any], stage: dict[str, Any]) -> str:
    path = folder / "weekly.parquet"
    pa.parquet.write_table(pa.table(columns), path)
    stream = io.StringIO()
    released_rows.print_stage(path, summary.console(stream), stage)
    return stream.getvalue()


def shown(folder: pathlib.Path, columns: dict[str, Any], stage: dict[str, Any]) -> released_rows.FirstRows:
    printed(folder, columns, stage)
    return released_rows.first_rows(folder / "weekly.parquet", stage)


def of(**metrics: Any) -> dict[str, Any]:
    return {"metrics": {name: {"kind": kind} for name, kind in metrics.items()}}


def test_the_largest_rows_come_first_and_the_cut_is_said(tmp_path: pathlib.Path) -> None:
    order = np.random.default_rng(0).permutation(1204)
    columns = {"k": [f"k{n}" for n in order], "price": order * 1.0, "price_stddev": order * 0.0 + 1,
               "n": -1.0 * order, "n_stddev": order * 0.0 + 2}  # fmt: skip
    said = printed(tmp_path, columns, of(price="mean", n="count"))
    rows = released_rows.first_rows(tmp_path / "weekly.parquet", of(price="mean", n="count"))
    assert [cells[0] for cells in rows.cells] == [f"k{n}" for n in range(10)]
    assert "weekly · 1,204 partitions" in said
    assert "the 10 largest of 1,204 by n; ± covers 95% of the noise" in said


def test_rows_without_a_metric_that_ranks_are_in_the_order_of_their_keys(tmp_path: pathlib.Path) -> None:
    columns = {"k": list("abcdefghijkl"), "price": [float(n) for n in range(12)], "price_stddev": [1.0] * 12}
    rows = shown(tmp_path, columns, of(price="mean"))
    assert [cells[0] for cells in rows.cells] == list("abcdefghij")
    assert rows.note.startswith("the first 10 of 12;")


def test_rows_without_a_number_come_last_and_are_not_lost(tmp_path: pathlib.Path) -> None:
    columns = {"k": ["a", "b", "c"], "n": [None, 5.0, 9.0], "n_stddev": [1.0, 1.0, 1.0]}
    assert [cells[0] for cells in shown(tmp_path, columns, of(n="count")).cells] == ["c", "b", "a"]


def test_the_best_are_in_the_order_in_which_they_were_chosen(tmp_path: pathlib.Path) -> None:
    columns = {"k": ["a", "b", "c"], "rank": [3, 1, 2]}
    best = {
        "partition_by": ["k", "rank"],
        "metrics": {},
        "selection": {"strategy": "permute_and_flip", "candidates": 9},
    }
    assert shown(tmp_path, columns, best).cells == (("b", "1"), ("c", "2"), ("a", "3"))
    # A column of this name that is a key like any other ranks nothing.
    assert shown(tmp_path, columns, {}).cells[0] == ("a", "3")


def test_a_mean_whose_bar_is_as_long_as_its_range_is_a_dash_and_stays_in_the_file(tmp_path: pathlib.Path) -> None:
    columns = {"k": ["a", "b"], "delay": [120.0, 7.0], "delay_stddev": [75.0, 2.0]}
    stage = {"metrics": {"delay": {"kind": "mean", "range": [-30.0, 120.0]}}}
    said = printed(tmp_path, columns, stage)
    assert "– (noise)" in said
    assert "120" not in said.partition("by chance")[0].partition("range -30")[0]
    assert "7.0 ± 3.9" in said
    assert "– (noise): the error bar is as long as the whole range" in said
    assert pa.parquet.read_table(tmp_path / "weekly.parquet")["delay"].to_pylist() == [120.0, 7.0]


def test_a_list_of_noise_is_one_dash(tmp_path: pathlib.Path) -> None:
    columns = {"k": ["a", "b"], "q": pa.array([[1.0, 5.0], [1.0, 5.0]]), "q_stddev": pa.array([[9.0, 9.0], [9.0, 0.1]])}
    rows = shown(tmp_path, columns, {"metrics": {"q": {"kind": "quantiles", "range": [0, 10]}}})
    assert [cells[1] for cells in rows.cells] == ["– (noise)", "– (noise), 5.00 ± 0.20"]


def test_verdicts_what_was_chosen_and_one_partition_are_said(tmp_path: pathlib.Path) -> None:
    stage = {**of(paid="sum"), "max_partitions_contributed": 8, "selection": {"strategy": "public"}}
    stage["metrics"]["paid"]["bounds"] = [0.0, 172.63349]
    said = printed(tmp_path, {"k": ["a"], "paid": [9.0], "paid_stddev": [1.0]}, stage)
    assert "weekly · 1 partition\n" in said
    assert "paid    1 of 1 differs from zero; 0.05 would by chance\n" in said
    assert "chosen  by this run: at most 8 groups of each unit count" in said
    assert "chosen  by this run: values of paid are clamped to 0 … 172.6" in said


def test_a_private_selection_that_published_nothing_says_what_a_group_needs(tmp_path: pathlib.Path) -> None:
    columns = {"k": pa.array([], pa.string()), "n": pa.array([], pa.float64()), "n_stddev": pa.array([], pa.float64())}
    stage = {**of(n="count"), "selection": {"strategy": "gaussian", "half_keep_users": 65.2}}
    said = printed(tmp_path, columns, stage)
    assert (
        "weekly · 0 partitions\n  no group was published: a group needs about 66 units. Use larger groups or more rows, "
        in said
    )
    rows = released_rows.first_rows(tmp_path / "weekly.parquet", stage, unit="value of customer_id")
    assert "a group needs about 66 customers. Use" in rows.remark


def test_names_and_words_say_nothing_to_a_terminal(tmp_path: pathlib.Path) -> None:
    columns = {"k": ["[red]"], "m\x1b[1m": [1.0], "m\x1b[1m_stddev": [1.0]}
    said = printed(tmp_path, columns, {"metrics": {"m\x1b[1m": {"kind": "sum", "bounds": [0, 1]}}})
    assert "\x1b" not in said
    assert "[red]" in said


def _wide(tmp_path: pathlib.Path, metrics: int, width: int) -> str:
    """What is printed of a table with many metrics on lines of a width."""
    columns: dict[str, list[float]] = {}
    for number in range(metrics):
        columns |= {f"metric_{number}": [123_456.0, 7.0], f"metric_{number}_stddev": [2.0, 2.0]}
    table = pa.table({"month": ["2026-01-05", "2026-01-12"], **columns})
    pa.parquet.write_table(table, tmp_path / "wide.parquet")
    out = io.StringIO()
    entries = {f"metric_{number}": {"kind": "count", "stddev": 2.0} for number in range(metrics)}
    described = {"name": "wide", "partition_by": ["month"], "metrics": entries}
    released_rows.print_stage(tmp_path / "wide.parquet", Console(file=out, width=width), described)
    return out.getvalue()


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("metrics", [1, 3, 9])
def test_metrics_that_do_not_fit_on_a_line_are_named_below_and_no_key_is_cut(
    tmp_path: pathlib.Path, metrics: int, width: int
) -> None:
    said = _wide(tmp_path, metrics, width)
    table = [line for line in said.splitlines() if "2026-01-" in line]
    assert len(table) == 2
    assert all("2026-01-05" in line or "2026-01-12" in line for line in table)
    assert all(len(line) <= width for line in table)
    shown = said.partition("2026-01-05")[0]
    left_out = [f"metric_{number}" for number in range(metrics) if f"metric_{number}" not in shown]
    assert len(left_out) < metrics
    assert ("no room on this line for " + ", ".join(left_out) + "; the files" in " ".join(said.split())) == bool(
        left_out
    )
