"""Rows in a bucket: read through a file system of Beam, and what is wrong with them is told by their names.

In: the shop, in a store that lives in this process. Out: releases, refusals. Holds: pipelines are real, on Beam's runner in this
process. Not covered: Google's store, and S3 (`test_s3_sources`).
"""

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.request.request import check
from dp_pipelines.jobs.spec import job_file
from tests.helpers.buckets import Buckets
from tests.jobs.conftest import Said, Shop, stage

Call = Callable[..., Said]
FAR_SOURCE = {"parquet": "bucket://shop/data/*.parquet"}


@pytest.fixture
def bucket(shop: Shop) -> Iterator[Shop]:
    """The shop, with its rows in a store and a job that names them there."""
    Buckets.held.clear()
    Buckets.deleted.clear()
    for path in sorted((shop.folder / "data").iterdir()):
        Buckets.held[f"bucket://shop/data/{path.name}"] = path.read_bytes()
        path.unlink()
    shop.write(source=FAR_SOURCE)
    yield shop
    Buckets.held.clear()


def test_rows_in_a_bucket_give_the_release_that_local_rows_give(bucket: Shop, call: Call) -> None:
    said = call("run", bucket.job, "--output", bucket.folder / "out")
    assert (said.code, said.err) == (0, "")
    table = pa.parquet.read_table(bucket.folder / "out" / "weekly.parquet")
    assert table.column("product").to_pylist() == ["p0", "p1", "p2", "p3", "p4"]
    # 4000 rows of two files over five products, of which bounds keep most.
    assert all(abs(count - 1200) < 500 for count in table.column("orders").to_pylist())


def test_the_jobs_own_rows_in_a_bucket_are_no_public_sample(bucket: Shop, call: Call) -> None:
    Buckets.held["bucket://public/a.parquet"] = Buckets.held["bucket://shop/data/part-0.parquet"]
    tuned = ("tune", bucket.job, "--grid", "bounds.max_partitions_contributed=1,2", "--output", bucket.folder / "tuned")
    for own in ("bucket://shop/data/*.parquet", "bucket://shop/*/part-1.parquet"):
        said = call(*tuned, "--sample", own)
        assert (said.code, "names files of the job's own source, whose rows are private" in said.err) == (2, True), said
    assert not (bucket.folder / "tuned").exists()
    said = call(*tuned, "--sample", "bucket://nobody/*.parquet")
    assert (said.code, "matches no file" in said.err) == (2, True), said
    assert call(*tuned, "--sample", "bucket://public/*.parquet").code == 0


def test_what_is_wrong_with_files_in_a_bucket_is_told_by_their_names(bucket: Shop, call: Call) -> None:
    Buckets.held["bucket://shop/data/part-1.parquet"] = b"PAR1 and nothing else"
    said = call("run", bucket.job, "--output", bucket.folder / "out")
    assert said.code == 2
    assert "file 'bucket://shop/data/part-1.parquet': is not a complete Parquet file" in said.err
    bucket.write(source={"parquet": "bucket://shop/none/*.parquet"})
    assert "matches no file" in call("run", bucket.job, "--output", bucket.folder / "out").err
    bucket.write(source={"parquet": "shelf://shop/*.parquet"})
    said = call("run", bucket.job, "--output", bucket.folder / "out")
    assert (said.code, "no file system here supports shelf://" in said.err) == (2, True)
    assert bucket.left() == []


def test_csv_in_a_bucket_is_checked_by_its_header(bucket: Shop) -> None:
    Buckets.held["bucket://shop/a.csv"] = b"customer,product\n1,p0\n"
    source = {"csv": "bucket://shop/*.csv", "types": {"customer": "int", "product": "string"}}
    counts = stage(metrics={"orders": {"kind": "count"}})
    request = check(job_file.load(str(bucket.write(source=source, stages={"weekly": counts}))), [])
    assert request.source.files == ("bucket://shop/a.csv",)
    assert request.source.bytes_of(["customer", "product"]) == 22
    source["types"]["price"] = "float"
    with pytest.raises(RequestError, match="has no column 'price'"):
        check(job_file.load(str(bucket.write(source=source))), [])
