"""Sorting in bounded memory: the same rows in the same order as in one table, and no file is left."""

import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines.release import staging
from dp_pipelines.release.sorted_runs import RUN_BYTES, in_order
from dp_pipelines.release.staging import sorted_by_key

ROWS = 5000


def tables(pieces: int) -> list[pa.Table]:
    """Rows in disorder, with equal and null keys in the first column and lists beside them."""
    numbers = np.random.default_rng(1).permutation(ROWS)
    return [
        pa.table(
            {
                "a": pa.array([f"{n // 7:05d}" if n % 11 else None for n in some.tolist()]),
                "b": some,
                "of": pa.array([[float(n), 1.0] for n in some.tolist()]),
            }
        )
        for some in np.array_split(numbers, pieces)
    ]


@pytest.mark.parametrize("run_bytes", [2000, 20_000, 10**6])
@pytest.mark.parametrize("pieces", [1, 40])
def test_runs_that_are_merged_are_the_whole_table_sorted(run_bytes: int, pieces: int, tmp_path: pathlib.Path) -> None:
    parts = list(in_order(iter(tables(pieces)), ["a", "b"], tmp_path, run_bytes))
    whole = sorted_by_key(pa.concat_tables(tables(pieces)), ["a", "b"])
    assert pa.concat_tables(parts).combine_chunks().equals(whole.combine_chunks())
    assert list(tmp_path.iterdir()) == []
    if run_bytes < 10**6 and pieces > 1:
        assert max(part.nbytes for part in parts) < whole.nbytes, "not all rows were in memory together"


@pytest.mark.parametrize("run_bytes", [1, 16, 40, 200])
def test_rows_that_are_longer_than_a_piece_should_be_are_sorted_one_by_one(
    run_bytes: int, tmp_path: pathlib.Path
) -> None:
    some = [table.slice(0, 9) for table in tables(4)]
    parts = list(in_order(iter(some), ["a", "b"], tmp_path, run_bytes))
    assert (
        pa.concat_tables(parts)
        .combine_chunks()
        .equals(sorted_by_key(pa.concat_tables(some), ["a", "b"]).combine_chunks())
    )
    if run_bytes < 16:
        assert max(part.num_rows for part in parts) <= len(some), "of each run one row is in memory at a time"


def test_a_run_fits_into_the_memory_of_a_small_worker_and_is_worth_a_file() -> None:
    assert 2**24 <= RUN_BYTES <= 2**29


@pytest.mark.parametrize("at", ["first", "between", "last", "alone"])
def test_tables_without_rows_may_come_at_any_place(at: str, tmp_path: pathlib.Path) -> None:
    full = [] if at == "alone" else tables(2)
    none = [tables(1)[0].slice(0, 0)] * 2
    given = {"first": [*none, *full], "between": [full[0], *none, full[1]] if full else none}.get(at, [*full, *none])
    parts = list(in_order(iter(given), ["a", "b"], tmp_path, run_bytes=2000))
    assert pa.concat_tables(parts).num_rows == (ROWS if full else 0)
    assert parts[0].schema.names == ["a", "b", "of"]


def test_the_layout_of_a_file_does_not_tell_how_its_rows_came_together(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "ROWS_OF_A_GROUP", 700)
    written = []
    for run_bytes, pieces, turned in ((10**9, 1, 1), (20_000, 40, 1), (20_000, 40, -1), (5000, 7, 1)):
        path = tmp_path / f"{run_bytes}-{pieces}-{turned}.parquet"
        staging.write_in_order(in_order(iter(tables(pieces)[::turned]), ["a", "b"], tmp_path, run_bytes), path)
        written.append(path.read_bytes())
    assert len(set(written)) == 1
    with pa.parquet.ParquetFile(path) as file:
        assert [file.metadata.row_group(n).num_rows for n in range(file.metadata.num_row_groups)] == [700] * 7 + [100]
