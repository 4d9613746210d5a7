"""What a job file says of its files: options of CSV, each with what contradicts it.

In: `source:` of a job file. Out: the format of the files, or errors with the line, the rule and a hint.
"""

import pathlib
from typing import Any

import pytest
import yaml

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec import job_file
from dp_pipelines.kernels.columns.csv_format import DEFAULT, CsvFormat

TYPES = {"who": "string", "day": "date", "at": "timestamp", "seen": "timestamptz", "paid": "double"}


def source(**said: Any) -> Any:
    """The source of a job that says so."""
    return read({"csv": "rows.csv", "types": TYPES, **said})


def read(said: dict[str, Any]) -> Any:
    """The source of a job."""
    job = {
        "dataset": "d",
        "privacy_unit": "who",
        "budget": {"epsilon": 1.0, "delta": 1e-6},
        "source": said,
        "stages": {
            "s": {
                "kind": "aggregate",
                "partition_by": [],
                "bounds": {"max_contributions_per_partition": 1},
                "metrics": {"n": {"kind": "count"}},
            }
        },
    }
    text = yaml.safe_dump(job, sort_keys=False)
    return job_file.read(text, pathlib.Path("job.yaml"), "job.yaml").job.source


def test_nothing_said_is_the_usual_format() -> None:
    assert source().form == DEFAULT
    assert source(quoted=False).form == CsvFormat(quote=None)


def test_what_is_said_is_the_format() -> None:
    found = source(
        delimiter=";", decimal=",", nulls=["-"], date_format="%d.%m.%Y", formats={"at": ["%Y%m%d", "iso8601"]}
    )
    assert found.form == CsvFormat(
        delimiter=";", decimal=",", nulls=["-"], date_formats=["%d.%m.%Y"], formats={"at": ["%Y%m%d", "iso8601"]}
    )
    assert source(header=False, names=[*TYPES, "x"]).form.names == (*TYPES, "x")


@pytest.mark.parametrize(
    ("said", "place", "words"),
    [
        ({"delimiter": "::"}, "source.delimiter", "must be one ASCII character"),
        ({"delimitor": ";"}, "source.delimitor", "did you mean 'delimiter'?"),
        ({"encoding": "utf-16"}, "source.encoding", "one row's bytes could shift all that follow"),
        ({"quoted": False, "quote": "'"}, "source.quote", "is not used with quoted: false; drop one"),
        ({"header": False}, "source.header", "names: is missing; write names: with the name of each column"),
        ({"names": ["who"]}, "source.names", "is for files without a header line; add header: false"),
        ({"header": False, "names": ["who", "day", "at", "sen", "paid"]}, "source.types.seen", "did you mean 'sen'?"),
        ({"header": False, "names": [*TYPES, "who"]}, "source.names", "names column 'who' twice"),
        ({"decimal": ";"}, "source.decimal", "."),
        ({"thousands": "."}, "source.thousands", "is the decimal separator too"),
        ({"formats": {"paid": "%Y-%m-%d"}}, "source.formats.paid", "no date, timestamp or timestamptz"),
        ({"formats": {"day": "%Y-%m-%d %H"}}, "source.formats.day", "'day' is a date; declare it as timestamp"),
        ({"date_format": "%d.%m.%Y %H:%M"}, "source.date_format", "has a time of day"),
        ({"timestamp_format": "%d.%m.%Y"}, "source.timestamp_format", "has no %z, and 'seen' is a timestamptz"),
        ({"timestamp_format": "%d.%m.%y %X"}, "source.timestamp_format", "unknown directive '%X'"),
        ({"csv": None, "parquet": "a", "types": None, "delimiter": ";"}, "source.types", "is for csv: and jsonl: only"),
    ],
)
def test_an_option_that_contradicts_itself_is_refused_by_its_line(said: dict[str, Any], place: str, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        source(**said)
    assert caught.value.field.startswith("job.yaml:")
    assert caught.value.field.endswith(place)
    assert words in str(caught.value)
