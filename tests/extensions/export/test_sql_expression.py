"""A linear model in SQL: DuckDB and PostgreSQL give what `predict` gives, whatever stands in rows, categories and names.

In: odd models and rows. Out: scores of both. Holds: PostgreSQL is a real server; a category or a name that is made to break
out of its quotes stays a value. Not covered: the command (`tests/extensions/export/test_export_model.py`).
"""

import datetime
import math
from collections.abc import Iterator

import duckdb
import hypothesis
import numpy as np
import psycopg
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from psycopg import sql

from dp_pipelines import MLP, BinaryLabel, Category, ClassLabel, Number, RequestError, TrainModel
from dp_pipelines.extensions.export.dialects import DIALECTS, DUCKDB, POSTGRESQL, Dialect
from dp_pipelines.extensions.export.sql_expression import expression, results
from dp_pipelines.training.artefact import PREDICTION, PROBABILITIES, Artefact
from dp_pipelines.training.features.encoder import Encoder
from tests.extensions.export.odd_models import HARMFUL, artefact, models
from tests.helpers.postgres import Server, server  # noqa: F401 - a fixture

TYPES = {
    pa.float64(): "double precision",
    pa.int64(): "bigint",
    pa.string(): "text",
    pa.date32(): "date",
    pa.bool_(): "boolean",
}


def in_duckdb(model: Artefact, rows: pa.Table, result: str | None = None, setting: str = "") -> list[object]:
    """What DuckDB makes of the expression."""
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        connection.execute(f"SET threads = 1; {setting}")
        return [
            row[0] for row in connection.execute(f"SELECT {expression(model, DUCKDB, result)} FROM rows").fetchall()
        ]


def in_postgres(
    connection: psycopg.Connection, model: Artefact, rows: pa.Table, result: str | None = None
) -> list[object]:
    """What PostgreSQL makes of it."""
    names = [sql.Identifier(name) for name in rows.column_names]
    kinds = [sql.SQL(TYPES[field.type]) for field in rows.schema]
    declared = sql.SQL(", ").join(sql.SQL("{} {}").format(*pair) for pair in zip(names, kinds, strict=True))
    with connection.transaction(force_rollback=True), connection.cursor() as cursor:
        cursor.execute(sql.SQL("CREATE TEMP TABLE rows (place int, {})").format(declared))
        places = sql.SQL(", ").join([sql.Placeholder()] * (len(names) + 1))
        content = [(place, *row.values()) for place, row in enumerate(rows.to_pylist())]
        cursor.executemany(sql.SQL("INSERT INTO rows VALUES ({})").format(places), content)
        query = f"SELECT {expression(model, POSTGRESQL, result)} FROM rows ORDER BY place"
        return [row[0] for row in cursor.execute(query.encode()).fetchall()]


def agree(model: Artefact, rows: pa.Table, found: list[object], result: str) -> None:
    """Whether results are those of `predict`."""
    wanted = model.predict(rows).column(result).to_pylist()
    if isinstance(model.task.label, ClassLabel) and result == PREDICTION:
        by_class = np.sort(np.array(model.predict(rows).column(PROBABILITIES).to_pylist()))
        clear = by_class[:, -1] - by_class[:, -2] > 1e-12
        found, wanted = ([value for value, own in zip(values, clear, strict=True) if own] for values in (found, wanted))
        assert found == wanted
    else:
        assert np.array(found, np.float64) == pytest.approx(np.array(wanted, np.float64), rel=1e-12, abs=1e-300)


@pytest.fixture(scope="module")
def connection(server: Server) -> Iterator[psycopg.Connection]:  # noqa: F811
    with psycopg.connect(server.url("exported"), autocommit=True) as opened:
        yield opened


@hypothesis.settings(max_examples=150)
@hypothesis.given(models(), st.data())
def test_duckdb_gives_what_predict_gives(pair: tuple[Artefact, pa.Table], data: st.DataObject) -> None:
    model, rows = pair
    result = data.draw(st.sampled_from(results(model)))
    agree(model, rows, in_duckdb(model, rows, result), result)


@hypothesis.settings(max_examples=60)
@hypothesis.given(models(), st.data())
def test_postgresql_gives_what_predict_gives(
    connection: psycopg.Connection, pair: tuple[Artefact, pa.Table], data: st.DataObject
) -> None:
    model, rows = pair
    result = data.draw(st.sampled_from(results(model)))
    texts = [name for name in rows.column_names if rows.schema.field(name).type == pa.string()]
    for name in texts:  # no text of PostgreSQL can hold it
        cells = [value and value.replace("\0", "0") for value in rows.column(name).to_pylist()]
        rows = rows.set_column(rows.column_names.index(name), name, pa.array(cells, pa.string()))
    agree(model, rows, in_postgres(connection, model, rows, result), result)


def named(*categories: str, column: str = "c", classes: tuple[str, ...] = ()) -> Artefact:
    """A model of one category, whose weights differ."""
    label = ClassLabel(column="y", classes=classes) if classes else BinaryLabel(column="y")
    features = {"f": Category(column=column, categories=list(categories))}
    task = TrainModel(privacy_unit="u", label=label, features=features, whiten=False)
    return artefact(task, Encoder.of(task), np.linspace(-1, 1, task.size))


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_nothing_that_a_name_holds_leaves_its_quotes(dialect: Dialect) -> None:
    columns = [text for text in HARMFUL if text.isprintable()]
    for column in columns:
        text = expression(named(*HARMFUL, column=column, classes=HARMFUL[:3]), dialect, PREDICTION)
        assert all(sign.isprintable() or sign == "\n" for sign in text)
        if dialect is DUCKDB:
            (statement,) = duckdb.extract_statements(f"SELECT {text} FROM rows")
            assert statement.type == duckdb.StatementType.SELECT


def test_a_category_that_is_made_to_break_out_is_a_value(connection: psycopg.Connection) -> None:
    model, rows = named(*HARMFUL), pa.table({"c": [*HARMFUL, "else", None]})
    connection.execute("CREATE TABLE victim (a int)")
    # Old settings take a backslash inside of quotes for more than a backslash.
    for setting in ("on", "off"):
        connection.execute(f"SET standard_conforming_strings = {setting}")
        agree(model, rows, in_postgres(connection, model, rows), "probability")
    connection.execute("RESET standard_conforming_strings")
    assert connection.execute("SELECT count(*) FROM victim").fetchone() == (0,)
    agree(model, rows, in_duckdb(model, rows, setting="CREATE TABLE victim (a INTEGER);"), "probability")


CASES = pa.table({"c": ["north", "North", "e\u0301", "E", "é"]})


def test_upper_and_lower_case_differ_whatever_the_collation_of_duckdb() -> None:
    model, rows = named("north", "é"), CASES
    agree(model, rows, in_duckdb(model, rows, setting="SET default_collation = 'NOCASE.NOACCENT';"), "probability")


def test_upper_and_lower_case_differ_whatever_the_collation_of_postgresql(connection: psycopg.Connection) -> None:
    model, rows = named("north", "é"), CASES
    with connection.transaction(force_rollback=True):
        made = "CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level1', deterministic = false)"
        try:
            connection.execute(made)
        except psycopg.errors.FeatureNotSupported:
            pytest.skip("this server has no ICU")
        connection.execute('CREATE TEMP TABLE loosely (place int, c text COLLATE "loose")')
        for place, text in enumerate(rows["c"].to_pylist()):
            connection.execute("INSERT INTO loosely VALUES (%s, %s)", (place, text))
        query = f"SELECT {expression(model, POSTGRESQL)} FROM loosely ORDER BY place"
        agree(model, rows, [row[0] for row in connection.execute(query.encode()).fetchall()], "probability")


@pytest.mark.parametrize("style", ["ISO", "SQL, DMY", "German"])
def test_days_that_are_listed_as_text_are_found_whatever_the_style_of_dates(
    connection: psycopg.Connection, style: str
) -> None:
    model, day = named("2026-01-31", "1987-06-05"), datetime.date(2026, 1, 31)
    rows = pa.table({"c": [day, datetime.date(1987, 6, 5), datetime.date(2026, 2, 1), None]})
    agree(model, rows, in_duckdb(model, rows), "probability")
    connection.execute(f"SET DateStyle = '{style}'".encode())
    agree(model, rows, in_postgres(connection, model, rows), "probability")
    texts = pa.table({"c": ["2026-01-31", "1987-06-05 ", "31/01/2026", None]})
    agree(model, texts, in_postgres(connection, model, texts), "probability")
    connection.execute("RESET DateStyle")


def test_truths_are_numbers_where_the_model_reads_numbers(connection: psycopg.Connection) -> None:
    task = TrainModel(
        privacy_unit="u",
        label=BinaryLabel(column="y"),
        features={"f": Number(column="x", min_value=0, max_value=1, edges=[0.5], scaled=True)},
        whiten=False,
    )
    model, rows = artefact(task, Encoder.of(task), np.arange(task.size) / 7), pa.table({"x": [True, False, None]})
    wanted = model.predict(rows).column("probability").to_pylist()
    with duckdb.connect() as opened:
        opened.register("rows", rows)
        found = opened.execute(f"SELECT {expression(model, DUCKDB, whole=['x'])} FROM rows").fetchall()
    with connection.transaction(force_rollback=True):
        connection.execute("CREATE TEMP TABLE truths AS VALUES (1, TRUE), (2, FALSE), (3, NULL)")
        connection.execute("ALTER TABLE truths RENAME column2 TO x")
        query = f"SELECT {expression(model, POSTGRESQL, whole=['x'])} FROM truths ORDER BY column1"
        theirs = connection.execute(query.encode()).fetchall()
    assert [row[0] for row in found] == pytest.approx(wanted, rel=1e-12)
    assert [row[0] for row in theirs] == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("value", [0.1, 1e-300, -5e-324, 1.7976931348623157e308, 2.0**53, -0.0])
def test_numbers_are_read_back_bit_for_bit(connection: psycopg.Connection, value: float) -> None:
    assert duckdb.execute(f"SELECT {DUCKDB.number(value)}").fetchone() == (value,)
    assert connection.execute(f"SELECT {POSTGRESQL.number(value)}".encode()).fetchone() == (value,)
    assert math.copysign(1, duckdb.execute(f"SELECT {DUCKDB.number(value)}").fetchall()[0][0]) == math.copysign(
        1, value + 0.0
    )


def line(weight: float) -> Artefact:
    """A model with one large weight."""
    task = TrainModel(
        privacy_unit="u",
        label=BinaryLabel(column="y"),
        features={"f": Number(column="x", min_value=0, max_value=1, bins=1, scaled=True)},
        whiten=False,
    )
    return artefact(task, Encoder.of(task), np.array([weight, 0, 0, weight]))


def test_what_no_expression_can_say_is_refused() -> None:
    with pytest.raises(RequestError, match="overflows"):
        expression(line(1e305), DUCKDB)
    with pytest.raises(RequestError, match="overflows"):
        expression(line(float("nan")), DUCKDB)
    with pytest.raises(RequestError, match="63 bytes"):
        expression(named("a", column="ä" * 32), POSTGRESQL)
    with pytest.raises(RequestError, match="PostgreSQL can hold"):
        expression(named("a", classes=("a\0", "b")), POSTGRESQL, PREDICTION)
    with pytest.raises(RequestError, match="none of this model"):
        expression(named("a"), DUCKDB, PREDICTION)
    twice = TrainModel(
        privacy_unit="u",
        label=BinaryLabel(column="y"),
        features={name: Category(column=name, categories=["a"]) for name in ("Area", "area")},
        whiten=False,
    )
    with pytest.raises(RequestError, match="upper and lower case"):
        expression(artefact(twice, Encoder.of(twice), np.zeros(twice.size)), DUCKDB)
    deep = TrainModel(
        privacy_unit="u",
        label=BinaryLabel(column="y"),
        features=line(1.0).task.features,
        model=MLP(hidden=[2]),
        whiten=False,
    )
    with pytest.raises(RequestError, match="not linear"):
        expression(artefact(deep, Encoder.of(deep), np.zeros(deep.size)), DUCKDB)


def test_scores_far_from_zero_end_no_query(connection: psycopg.Connection) -> None:
    rows = pa.table({"x": [0.0, 1.0, 5e-324, None]})
    for weight in (1e299, -1e299, 1e-300, -1e4, 800.0):
        agree(line(weight), rows, in_postgres(connection, line(weight), rows), "probability")
        agree(line(weight), rows, in_duckdb(line(weight), rows), "probability")
