"""Long texts of one unit, in any part that a column plays: they end no run, and change nothing of other units."""

import hashlib
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.errors import RequestError
from dp_pipelines.kernels import contributions
from dp_pipelines.kernels.columns import long_text
from dp_pipelines.kernels.layout import Layout
from dp_pipelines.query.train_model import BinaryLabel, Number, TrainModel
from dp_pipelines.steps.aggregate import BoundedWire, ToShards
from dp_pipelines.steps.read_files import ReadRowGroups
from dp_pipelines.steps.write_examples import SpillToShards, examples_of
from dp_pipelines.training.examples.split import COLUMN, answers_of, split
from dp_pipelines.transforms.examples import BoundedExamples
from tests.helpers import neighbours as nb

SIZES = [1, 10, 60, 64, 65, 100, 256, 257, 300, 4000, 4096, 4097, 5000]


def ids(repeated: int = 20) -> list[str]:
    """Names of units of 2 to some 5,000 bytes."""
    return ["a" * size + str(number) for number, size in enumerate(SIZES * repeated)]


def test_units_are_divided_as_they_were_in_version_0_1_0_whatever_their_length():
    found = split([pa.array(["a" * n + str(i) for i, n in enumerate(LENGTHS_OF_0_1_0 * 20)])], key=b"k", held_out=0.5)
    assert hashlib.sha256(found.tobytes()).hexdigest() == ANSWERS_OF_0_1_0


LENGTHS_OF_0_1_0 = [1, 10, 60, 65, 100, 300, 4000, 4096, 4097, 5000]

ANSWERS_OF_0_1_0 = "04e898f48d731c67048ce2e30996ff697d225825971e878aeadd8d31ff296733"
"""SHA-256 of the answers for these names, computed with version 0.1.0."""


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
)
def test_the_groups_of_a_plan_are_those_of_the_names_themselves_in_every_run(kind, tmp_path):
    task = TrainModel(
        privacy_unit=["who"],
        label=BinaryLabel(column="y"),
        features={"x": Number(column="x", min_value=0, max_value=1)},
    )
    names = pa.array(ids())
    column = names.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else names.cast(kind)
    rows = pa.table({"who": column, "x": np.linspace(0, 1, len(names)), "y": [True] * len(names)})
    expected = dict(zip(ids(), split([names], key=b"plan", held_out=0.3).tolist(), strict=True))
    for shards, salt in ((1, 1), (5, 2)):
        cut = SpillToShards(
            ("who", "x", "y"), ("who",), 9, shards, salt, folder=str(tmp_path), key=b"plan", held_out=0.3
        )
        found = {}
        for begin in range(0, rows.num_rows, 100):
            for _, piece in super(SpillToShards, cut).compute(rows.slice(begin, 100)):
                examples = examples_of([piece], task, 9, None, salt)
                answers = answers_of(examples, ["who"], key=b"plan", held_out=0.3)
                found |= dict(zip(examples["who"].to_pylist(), answers.tolist(), strict=True))
        stood_for = {name if len(name) <= 64 else long_text.stand_in(name.encode()).decode(): name for name in expected}
        assert {stood_for[name]: answer for name, answer in found.items()} == expected
        assert COLUMN in examples.column_names


LAYOUT = Layout(units=("u",), partitions=("p",), max_partitions=2, max_rows_per_partition=2)


def travelling(parts: list[contributions.Hashed]) -> tuple[pa.Table, contributions.Words]:
    """The rows that travel, and their hashes."""
    whole = contributions.together(parts)
    if whole.travels is None:
        return whole.wire, whole.hashes
    return whole.wire.filter(pa.array(whole.travels)), whole.hashes[whole.travels]


@pytest.mark.parametrize("part", [0.2, 0.5, 1.0])
def test_a_unit_that_fills_a_part_of_every_batch_travels_bounded(part):
    rows = 100_000
    mine = int(rows * part)
    units = np.concatenate([np.zeros(mine, np.int64), np.arange(1, rows - mine + 1)])
    table = pa.table({"u": units, "p": np.arange(rows) % 50}).take(pa.array(np.random.default_rng(3).permutation(rows)))
    reduced, hashes = travelling(contributions.reduce_frequent(LAYOUT.wire(table), LAYOUT, 7))
    assert hashes.tolist() == contributions.unit_hashes(reduced, LAYOUT, 7).tolist()
    of_mine = (reduced["u0"].to_numpy() == 0).sum()
    assert of_mine == 4
    assert reduced.num_rows == rows - mine + 4


@given(pair=nb.neighbours(), most=st.integers(0, 3), data=st.data())
def test_bounding_frequent_units_first_keeps_what_bounding_all_at_once_keeps(pair, most, data):
    wire = pair.layout.wire(pair.larger)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contributions, "FREQUENT", most)
        patch.setattr(contributions, "BUCKET_BITS", data.draw(st.sampled_from([1, 2, 18])))
        hashes = contributions.unit_hashes(wire, pair.layout, nb.SALT)
        frequent = contributions.frequent_rows(wire, pair.layout, hashes)
        units = list(zip(*(wire.column(name).to_pylist() for name in pair.layout.unit_names), strict=True))
        assert frequent.tolist() == [units.count(unit) > most for unit in units]
        reduced, _ = travelling(contributions.reduce_frequent(wire, pair.layout, nb.SALT))
    assert kept(reduced, pair.layout) == kept(wire, pair.layout)


def kept(wire: pa.Table, layout: Layout) -> list[str]:
    """The rows that bounding keeps, without what a kept row carries for others."""
    rows = wire.take(pa.array(contributions.bound(wire, layout, nb.SALT).bounded.rows))
    names = [name for name in rows.column_names if name[0] not in "sdw"]
    return sorted(repr(row) for row in rows.select(names).to_pylist())


def test_no_shard_gets_long_keys_that_none_of_its_rows_has():
    others, mine = 5000, 250
    table = pa.table(
        {
            "u": ["mine"] * mine + [f"u{number}" for number in range(others)],
            "p": [f"{number:05d}" + "x" * 16_000 for number in range(mine)] + ["a"] * others,
        }
    )
    cut = ToShards(LAYOUT, 64, 1).compute([table])
    texts = [(shard, piece) for shard, piece in cut if long_text.KEY in piece.column_names]
    assert len({shard for shard, _ in texts}) == 1
    assert sum(piece.num_rows for _, piece in texts) == LAYOUT.max_partitions
    assert sum(piece.nbytes for _, piece in cut) < 400_000


def test_a_long_listed_key_leaves_bounding_whole():
    listed = "L" * 80
    layout = Layout(units=("u",), partitions=("p",), max_partitions=4, public=([listed, "a"],))
    cut = [piece for _, piece in ToShards(layout, 1, 1).compute([pa.table({"u": ["x", "y"], "p": [listed, "a"]})])]
    (wire,) = BoundedWire(layout, 1).process((0, cut))
    assert sorted(wire.column("p0").to_pylist()) == sorted([listed, "a"])


def test_no_column_of_a_table_says_who_is_held_out():
    with pytest.raises(RequestError, match="two leading|two underscores"):
        BinaryLabel(column=COLUMN)
    task = TrainModel(
        privacy_unit=["who"],
        label=BinaryLabel(column="y"),
        features={"x": Number(column="x", min_value=0, max_value=1)},
    )
    with pytest.raises(RequestError, match="a reserved name"):
        BoundedExamples(task, folder=".", max_rows_per_unit=9, reads=["who", "y", "x", COLUMN])


@pytest.mark.parametrize(
    "rest", [[], [f"other {number}" for number in range(200_000)]], ids=["codes alone", "and plain pages"]
)
def test_a_long_text_that_a_file_holds_once_is_never_decoded_for_its_rows(tmp_path, rest):
    rows = 5000
    path = str(tmp_path / "a.parquet")
    values = pa.array(["x" * 500_000, *rest])
    codes = pa.array(np.concatenate([np.zeros(rows, np.int32), np.arange(1, len(values), dtype=np.int32)]))
    column = pa.DictionaryArray.from_arrays(codes, values)
    pyarrow.parquet.write_table(pa.table({"who": column}), path, row_group_size=2**20, store_schema=False)
    before, largest = pa.total_allocated_bytes(), 0
    for table in ReadRowGroups(["who"]).process(((path, -1), len(codes))):
        largest = max(largest, table.nbytes, pa.total_allocated_bytes() - before)
    assert largest < 200 * 2**20


JOB = """
dataset: shop
privacy_unit: who
budget: {{epsilon: 30.0, delta: 1.0e-6}}
source: {{parquet: "{folder}/*.parquet"}}
stages:
  weekly:
    kind: aggregate
    partition_by: [region]
    bounds: {{max_partitions_contributed: 2, max_contributions_per_partition: 2}}
    metrics:
      orders: {{kind: count}}
      pages: {{kind: distinct_count, column: page, max_values_per_partition: 2}}
"""

LONG_REGION = "region " * 100


def honest(rows: int = 3000) -> pa.Table:
    """Three rows of each unit, in regions of which one has a long name."""
    numbers = np.arange(rows)
    return pa.table(
        {
            "who": [f"c{number // 3}" for number in numbers],
            "region": [("north", LONG_REGION, "south")[number % 3] for number in numbers],
            "id": [str(number) for number in numbers],
            "page": [f"/{number % 7}" for number in numbers],
        }
    )


def hostile(rows: int, size: int) -> pa.Table:
    """One unit with long texts in each part, which its file holds once: decoded they are more than Arrow's offsets address."""
    codes = np.zeros(rows, np.int32)

    def same(text: str) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array([text]))

    return pa.table(
        {"who": same("u" * size), "region": same("r" * size), "id": same("i" * size), "page": same("p" * size)}
    )


def published(folder, files) -> tuple[int, str, str, list[str | None]]:
    folder.mkdir()
    (folder / "job.yaml").write_text(JOB.format(folder=folder))
    for number, table in enumerate(files):
        pyarrow.parquet.write_table(table, folder / f"{number}.parquet")
    done = subprocess.run(
        [sys.executable, "-m", "dp_pipelines.jobs.cli.main", "run", str(folder / "job.yaml"), "--output", str(folder / "out"),
         "--ledger", "none"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    regions = pyarrow.parquet.read_table(folder / "out" / "weekly.parquet")["region"].to_pylist()
    return done.returncode, done.stderr, str(sorted(p.name for p in (folder / "out").iterdir())), regions


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "size"), [(600_000, 4096), (2_500, 2**20)])
def test_more_long_text_than_arrow_can_address_ends_no_run_and_moves_no_other_unit(tmp_path, rows, size):
    attacked = published(tmp_path / "attacked", [honest(), hostile(rows, size)])
    alone = published(tmp_path / "alone", [honest(), hostile(0, 1)])
    assert attacked[0] == alone[0]
    assert attacked[2] == alone[2]
    assert set(alone[3]) == {"north", "south", LONG_REGION}
    assert set(attacked[3]) - {None} == set(alone[3])
