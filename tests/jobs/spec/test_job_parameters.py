"""Parameters: their types, their place in paths and in SQL, and what they can never do there."""

import datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec import job_parameters
from dp_pipelines.jobs.sql.expressions import bind

DECLARED = {"week": "string", "top": "int", "low": "float", "day": "date"}
GIVEN = ["week=2026-W01", "top=3", "low=0.5", "day=2026-01-05"]


def test_values_have_their_declared_types() -> None:
    assert job_parameters.take(DECLARED, GIVEN) == {
        "week": "2026-W01",
        "top": 3,
        "low": 0.5,
        "day": datetime.date(2026, 1, 5),
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("top", "x"), ("top", "1.5"), ("top", ""), ("top", "9" * 30), ("top", "9223372036854775808"), ("top", "1_0"),
        ("top", "\u0663"),
        ("low", "nan"), ("low", "inf"), ("low", "1e999"), ("low", "0x1"), ("low", " 1"),
        ("day", "2026-02-30"), ("day", "20260105"), ("day", "2026-1-5"), ("day", "today"),
        ("week", "a\nb"), ("week", "a\0b"), ("week", "\x1b[31m"),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_refused(name: str, text: str) -> None:
    given = [item for item in GIVEN if not item.startswith(name)] + [f"{name}={text}"]
    with pytest.raises(RequestError, match=f"--param {name}: must be"):
        job_parameters.take(DECLARED, given)


def test_missing_unknown_and_doubled_parameters_are_named_at_once() -> None:
    with pytest.raises(RequestError) as caught:
        job_parameters.take(DECLARED, ["wek=1", "top=1", "top=2", "low", "day=2026-01-05"])
    said = str(caught.value)
    assert "--param wek: is not declared in the job file's params; did you mean 'week'?" in said
    assert "--param top: is given twice" in said
    assert "--param low: must be NAME=VALUE" in said
    assert "--param week: is missing; add --param week=2026-W01" in said


def test_a_job_without_params_takes_none() -> None:
    with pytest.raises(RequestError, match="the job file declares no params"):
        job_parameters.take({}, ["week=1"])


def test_a_value_is_one_piece_of_a_path() -> None:
    assert (
        job_parameters.into_source("data/{week}/{top}-*.parquet", {"week": "2026-W01", "top": 3})
        == "data/2026-W01/3-*.parquet"
    )


@pytest.mark.parametrize("text", ["..", ".", "", "a/b", "../../etc", "/etc", "a\\b", "~", "~root"])
def test_a_value_never_leaves_its_folder(text: str) -> None:
    with pytest.raises(RequestError, match="--param week"):
        job_parameters.into_source("data/{week}/*.parquet", {"week": text})


def test_a_value_has_no_wildcards(tmp_path) -> None:
    import glob

    for folder in ("a1", "a[1]", "a*"):
        (tmp_path / folder).mkdir()
    for text in ("a[1]", "a*"):
        pattern = job_parameters.into_source(f"{tmp_path}/{{week}}", {"week": text})
        assert glob.glob(pattern) == [str(tmp_path / text)]


def test_an_undeclared_placeholder_in_the_source_is_refused() -> None:
    with pytest.raises(RequestError, match=r"uses \{wek\}.*did you mean 'week'"):
        job_parameters.into_source("data/{wek}/*.parquet", {"week": "1"})


SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("n", pa.int64()), ("day", pa.date32())])
TABLE = pa.table({"id": [1, 2], "name": ["a", "b"], "n": [3, 4], "day": pa.array([datetime.date(2026, 1, 5), None])})
HOSTILE = [
    "' OR 1=1 --",
    "x' OR 'a'='a",
    "'; DROP TABLE t; --",
    "a\\' OR TRUE",
    "{n}",
    "$dp_param_n",
    "name",
    "/*",
    "\u2019 OR 1=1",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_value_in_a_condition_is_a_value_and_never_sql(text: str) -> None:
    rows = bind("name = {week}", {}, SCHEMA, unit=["id"], values={"week": text})
    assert rows.apply(TABLE).num_rows == 0
    same = TABLE.set_column(1, "name", pa.array([text, "b"]))
    assert rows.apply(same).column("name").to_pylist() == [text]


@given(st.text(st.characters(codec="utf-8"), max_size=20))
def test_any_text_compares_as_itself(text: str) -> None:
    if text.isprintable():
        rows = bind("name = {week}", {}, SCHEMA, unit=["id"], values={"week": text})
        assert rows.apply(TABLE.set_column(1, "name", pa.array([text, text + "x"]))).num_rows == 1


def test_typed_parameters_compare_with_their_columns() -> None:
    values = {"top": 3, "day": datetime.date(2026, 1, 5), "low": 2.5}
    rows = bind("n <= {top} AND day = {day} AND n > {low}", {}, SCHEMA, unit=["id"], values=values)
    assert rows.apply(TABLE).column("id").to_pylist() == [1]


@pytest.mark.parametrize(
    "where",
    [
        "name = '{week}'",
        "name = 'x{week}y'",
        "name = 'a' -- {week}",
        'name = "{week}"',
        "n = {week} OR name = '{week}'",
    ],
)
def test_a_placeholder_inside_quotes_is_refused_instead_of_staying_text(where: str) -> None:
    with pytest.raises(RequestError):
        bind(where, {}, SCHEMA, unit=["id"], values={"week": "1"})


def test_an_undeclared_placeholder_in_a_condition_is_refused_with_a_hint() -> None:
    with pytest.raises(RequestError, match=r"declare \{wek\} in params"):
        bind("name = {wek}", {}, SCHEMA, unit=["id"], values={"week": "1"})


def test_a_parameter_does_not_work_in_columns() -> None:
    with pytest.raises(RequestError, match="only be used in source, where and having"):
        bind(None, {"x": "name || {week}"}, SCHEMA, unit=["id"], values={"week": "1"})


def test_a_value_that_cannot_be_compared_is_refused_before_a_row_is_read() -> None:
    with pytest.raises(RequestError, match="where"):
        bind("n = {week}", {}, SCHEMA, unit=["id"], values={"week": datetime.date(2026, 1, 5)})
