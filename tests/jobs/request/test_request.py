"""A job against its files: what is checked together before anything is planned or read."""

import datetime
import pathlib

import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines import PublicPartitions
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.request.request import Request, check
from dp_pipelines.jobs.spec import job_file
from tests.jobs.conftest import Shop, stage


def checked(path: pathlib.Path, *given: str) -> Request:
    """The request of a job file."""
    return check(job_file.load(str(path)), given)


def refused(path: pathlib.Path, *given: str) -> str:
    """The words with which a job is refused."""
    with pytest.raises(RequestError) as caught:
        checked(path, *given)
    return str(caught.value).replace(str(path.parent), "")


def test_only_the_columns_that_something_uses_are_read(shop: Shop) -> None:
    request = checked(shop.write(where="note <> 'x'", columns={"day": "CAST(paid_at AS DATE)"}))
    assert set(request.columns) == {"customer", "product", "price", "note", "paid_at"}


def test_a_lookup_may_join_by_a_defined_column_and_partition_by_a_looked_up_one(shop: Shop) -> None:
    pa.parquet.write_table(pa.table({"k": [1, 2, 3], "city": ["a", "b", "c"]}), shop.folder / "stores.parquet")
    request = checked(
        shop.write(
            columns={"k": "CAST(store AS BIGINT)"},
            lookup={"parquet": "stores.parquet", "on": "k"},
            stages={"weekly": stage(partition_by=["city"])},
        )
    )
    assert request.lookup is not None
    assert set(request.columns) == {"customer", "price", "store"}


def total(column: str) -> dict[str, object]:
    """Metrics with the sum of a column."""
    return {"m": {"kind": "sum", "column": column, "min_value": 0, "max_value": 1}}


WRONG = [
    (
        {"privacy_unit": "custmer"},
        ":2: privacy_unit: names column 'custmer', which does not exist; did you mean 'customer'?",
    ),
    ({"where": "prise > 1"}, "where: names column 'prise', which the source does not have; did you mean 'price'?"),
    ({"columns": {"customer": "1"}}, "columns.customer: would define a column of the privacy unit"),
    ({"columns": {"price": "1"}}, "columns.price: would shadow column 'price' of the source"),
    ({"columns": {"x": "sum(price)"}}, "columns.x: uses 'sum'"),
    (
        {"stages": {"s": stage(partition_by="price")}},
        "stages.s.partition_by: column 'price' is a float (double) and cannot partition; cast",
    ),
    ({"stages": {"s": stage(partition_by="prodct")}}, "did you mean 'product'?"),
    (
        {"stages": {"s": stage(metrics=total("note"))}},
        "stages.s.metrics.m.column: column 'note' has type string, which is no number",
    ),
    (
        {"stages": {"s": stage(metrics=total("pric"))}},
        "stages.s.metrics.m.column: names column 'pric', which does not exist; did you mean 'price'?",
    ),
    (
        {"stages": {"s": stage(partitions={"public": [["p1"], ["p1"]]})}},
        "stages.s.partitions.public: lists a partition twice",
    ),
    ({"stages": {"s": stage(partitions={"public": [["p1"], [3]]})}}, "stages.s.partitions.public: lists"),
    ({"row_id": "nothing"}, "row_id: names column 'nothing'"),
    ({"lookup": {"parquet": "none.parquet", "on": "store"}}, "lookup: matches no file"),
    ({"lookup": {"parquet": "stores.parquet", "on": "store"}}, "lookup: would shadow"),
    ({"source": {"parquet": "none/*.parquet"}}, "source: matches no file: 'none/*.parquet'"),
    (
        {"source": {"csv": "data/*.parquet", "types": {"customer": "integer"}}},
        "source.types.customer: unknown type 'integer'; did you mean 'int",
    ),
]


@pytest.mark.parametrize(("changes", "words"), WRONG)
def test_what_public_facts_show_to_be_wrong_is_refused_at_its_line(
    shop: Shop, changes: dict[str, object], words: str
) -> None:
    pa.parquet.write_table(
        pa.table({"store": pa.array([1], pa.int32()), "price": [1.0]}), shop.folder / "stores.parquet"
    )
    said = refused(shop.write(**changes))
    assert words in said
    assert said.startswith("/job.yaml:")


def test_a_float_may_be_a_privacy_unit_since_data_frames_make_one_of_integers_with_nulls(shop: Shop) -> None:
    assert checked(shop.write(privacy_unit="price")).columns[0] == "price"


def test_a_column_that_differs_between_files_is_refused_only_where_it_is_used(shop: Shop) -> None:
    table = pa.parquet.read_table(shop.folder / "data" / "part-0.parquet")
    other = table.set_column(table.schema.get_field_index("store"), "store", table.column("store").cast(pa.int64()))
    pa.parquet.write_table(other, shop.folder / "data" / "part-1.parquet")
    assert checked(shop.write())
    words = "file '/data/part-1.parquet': has column 'store' as int64, but 'part-0.parquet' has it as int32"
    assert words in refused(shop.write(stages={"s": stage(partition_by="store")}))
    assert "names column 'store': file '/data/part-1.parquet'" in refused(shop.write(where="store = 1"))


def test_public_lists_get_the_types_of_their_columns(shop: Shop) -> None:
    weeks = stage(partition_by=["week"], partitions={"public": [["2025-01-06"], ["2025-01-13"], [None]]})
    request = checked(shop.write(columns={"week": "CAST(date_trunc('week', paid_at) AS DATE)"}, stages={"s": weeks}))
    partitions = request.queries["s"].partitions
    assert isinstance(partitions, PublicPartitions)
    assert partitions.keys == ((datetime.date(2025, 1, 6),), (datetime.date(2025, 1, 13),), (None,))


def test_the_content_of_a_request_is_what_it_asks_for(shop: Shop) -> None:
    params = {"low": {"type": "float"}}
    path = shop.write(params=params, where="price > {low}")
    first = checked(path, "low=1").content
    assert checked(path, "low=1.0").content == first
    assert checked(path, "low=2").content != first
    assert checked(shop.write(params=params, where="price >= {low}"), "low=1").content != first
    assert checked(shop.write(params=params, where="price > {low}", expect={"users": 5}), "low=1").content == first
