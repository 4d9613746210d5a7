"""Jobs with several lookups: what a stage reads, what is counted before the noise, what is refused with its line.

In: a job over rows of a CSV file, and public tables. Out: exact counts of the steps of the pipeline; errors.
"""

import pathlib
from typing import Any

import pytest

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.request.request import check
from dp_pipelines.kernels.unit_facts import TWIN
from dp_pipelines.planning.describe import asked_to_json
from tests.helpers import file_pairs, neighbours

STORES = {"csv": "shops.csv", "on": {"shop": "id"}, "delimiter": ";", "types": {"id": "int"}}
TAGS = {"csv": "tags.csv", "on": ["town", "text"], "max_rows_per_key": 2}
ROWS = {
    "u1": [("1", "north"), ("1", "north"), ("2", "north")],
    "u2": [("1", "north"), ("1", "south"), ("9", "north"), ("", "north")],
}


def runs(folder: pathlib.Path, lookup: Any, **stage: Any) -> file_pairs.Runs:
    """A job whose rows have a shop and a text."""
    shape = {"partition_by": ["tag"], "bounds": {"max_partitions_contributed": 3, "max_contributions_per_partition": 9}}
    listed = {"public": [["new"], ["red"], [None]]}
    metrics = {"rows": {"kind": "count"}}
    source = {"csv": "rows", "types": {"who": "string", "shop": "int64", "text": "string"}}
    job = {"source": source, "lookup": lookup, "stage": {**shape, "partitions": listed, "metrics": metrics, **stage}}
    case = file_pairs.Case(name="lookups", csv=True, job=job)
    folder.mkdir()
    (folder / "shops.csv").write_text("id;town\n1;Oslo\n2;Bonn\n")
    (folder / "tags.csv").write_text("town,text,tag\nOslo,north,new\nOslo,north,red\nBonn,north,new\nOslo,east,red\n")
    (folder / "rows").write_text("who,shop,text\n")
    return file_pairs.Runs(case, folder)


def counts(made: file_pairs.Runs) -> dict[Any, int]:
    """The rows of each partition, before the noise."""
    lines = ["who,shop,text", *(f"{who},{shop},{text}" for who, listed in ROWS.items() for shop, text in listed)]
    seen = made.seen("\n".join(lines).encode())
    assert not seen.public["failure"]
    return {key[0].strip("'"): sums[0] for key, sums in neighbours.exact(seen.totals).items()}


def test_rows_are_counted_once_for_each_row_of_the_table_after_two_lookups(tmp_path: pathlib.Path) -> None:
    assert counts(runs(tmp_path / "job", [STORES, TAGS])) == {"new": 4, "red": 3, "None": 3}


def test_bounds_hold_for_the_rows_that_are_made(tmp_path: pathlib.Path) -> None:
    bounds = {"max_partitions_contributed": 1, "max_contributions_per_partition": 1}
    assert sum(counts(runs(tmp_path / "job", [STORES, TAGS], bounds=bounds)).values()) == len(ROWS)


def test_queries_tell_twins_apart_and_those_of_other_jobs_are_as_they_were(tmp_path: pathlib.Path) -> None:
    exploding = runs(tmp_path / "one", [STORES, TAGS]).request().queries["stage"]
    assert exploding.row_id == TWIN
    plain = runs(tmp_path / "two", [STORES, {**TAGS, "csv": "t.csv"}][:1], partition_by=["town"]).request()
    assert plain.queries["stage"].row_id is None
    assert "row_id" not in {k for k, v in asked_to_json(plain.queries["stage"]).items() if v is not None}


@pytest.mark.parametrize(
    ("lookup", "place", "words"),
    [
        (
            [STORES, {**TAGS, "max_rows_per_key": 1}],
            "lookup.1.on",
            "duplicate keys in 'town', 'text' of the lookup table, in line 3 of",
        ),
        ([TAGS, STORES], "lookup.0.on", "names column 'town', which the rows do not have"),
        ([STORES, {**TAGS, "on": ["town", "txt"]}], "lookup.1.on", "did you mean 'text'?"),
        ([STORES, STORES], "lookup.1", "would shadow column 'town'"),
        (
            [{**STORES, "types": {"id": "date"}}],
            "lookup.0",
            "a cell in column 'id' that is no date32[day], in line 2 of",
        ),
        ([{**STORES, "types": {"id": "intt"}}], "lookup.0.types.id", "unknown type 'intt'; did you mean 'int'?"),
        ([{**STORES, "delimiter": ","}], "lookup.0", "its separator seems to be ';'"),
        ([{**STORES, "on": []}], "lookup.0.on", "must not be empty"),
        ([{**STORES, "on": ["shop", "shop"]}], "lookup.0.on", "names a column twice"),
        ([{**STORES, "on": 3}], "lookup.0.on", "write e.g. on: STORE, on: [STORE, DAY] or on: {STORE: ID}"),
        ([{**STORES, "max_rows_per_key": 0}], "lookup.0.max_rows_per_key", "must be at least 1"),
        ([{**STORES, "keys": "id"}], "lookup.0.keys", "unknown key"),
        ({**STORES, "max_rows": 2}, "lookup.max_rows", "did you mean 'max_rows_per_key'?"),
        ([], "lookup", "must not be empty"),
        (3, "lookup", "must be a mapping"),
        ([{"csv": "none.csv", "on": "shop"}], "lookup.0", "matches no file"),
    ],
)
def test_what_is_wrong_with_a_lookup_is_told_with_its_place(
    tmp_path: pathlib.Path, lookup: Any, place: str, words: str
) -> None:
    with pytest.raises(RequestError) as caught:
        check(runs(tmp_path / "job", lookup).file, [])
    assert words in str(caught.value)
    assert caught.value.field.rpartition(" ")[2].rpartition(":")[2] == place
