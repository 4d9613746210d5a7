"""Encoding: each row by itself, by fixed rules of comparison, into a width that no data decides; who is held out."""

import bisect
import datetime
import decimal
import json
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines import RequestError
from dp_pipelines.kernels.columns import hashing
from dp_pipelines.query.train_model import BinaryLabel, Category, ClassLabel, Number, NumberLabel, TrainModel
from dp_pipelines.training.examples import split as splits
from dp_pipelines.training.examples.split import split
from dp_pipelines.training.features.encoder import FEW_CUTS, Encoder, cells_of, wrong_types
from tests.helpers.neighbours import array_of

DAY = datetime.date(2026, 1, 31)
EDGES = (-1.0, 0.0, 0.0, 2.5)


def task(features=None, label=None, pairs=()):
    features = features or {"x": Number(column="x", min_value=-4, max_value=4, bins=5)}
    return TrainModel(privacy_unit="u", label=label or BinaryLabel(column="y"), features=features, pairs=pairs)


def encoder(features=None, label=None, pairs=(), **found):
    return Encoder.of(task(features, label, pairs), **found)


NUMBER = encoder({"x": Number(column="x", min_value=-4, max_value=4, bins=5, scaled=True)}, edges={"x": EDGES})

NUMBERS = [
    (pa.float64(), [None, math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, -5e-324, 2.5, 2.4999999, 1e308, -4.0, 4.0]),
    (pa.float32(), [None, math.nan, 0.0, -0.0, 2.5, -1.0, 1e-45]),
    (pa.float16(), [None, math.nan, 2.5]),
    (pa.int8(), [None, 0, -1, 2, 3, -128, 127]),
    (pa.uint64(), [None, 0, 2**64 - 1, 2**53 + 1]),
    (pa.int64(), [None, -(2**63), 2**63 - 1]),
    (pa.bool_(), [None, True, False]),
    (pa.decimal128(20, 3), [None, decimal.Decimal("2.500"), decimal.Decimal("-1.001")]),
    (pa.dictionary(pa.int8(), pa.float64()), [None, math.nan, 1.0]),
    (pa.null(), [None]),
]


def number_row(value):
    """What a value becomes, in plain Python."""
    row = [1.0] + [0.0] * 7
    if value is None or math.isnan(value):
        row[1 + 5] = 1.0
        return row
    clipped = min(max(float(value), -4.0), 4.0)
    row[1 + bisect.bisect_right(EDGES, clipped)] = 1.0
    row[7] = round((clipped + 4) / 8 * 2**16) / 2**16
    return row


@given(st.sampled_from(NUMBERS).flatmap(lambda pair: st.tuples(st.just(pair[0]), st.lists(st.sampled_from(pair[1])))))
def test_a_number_is_in_one_bin_or_missing_whatever_type_its_column_has(drawn):
    kind, values = drawn
    table = pa.table({"x": array_of(kind, values)})
    found = NUMBER.encode(table)
    assert (found.dtype, found.shape) == (np.float32, (len(values), 8))
    assert found.tolist() == [number_row(value) for value in values]


@given(st.integers(0, 3 * FEW_CUTS), st.sampled_from([np.float32, np.float64, np.int64]), st.data())
def test_cells_are_found_alike_by_comparing_and_by_searching(size, kind, data):
    cuts = sorted(
        data.draw(st.lists(st.integers(-50, 50).map(lambda number: number / 10), min_size=size, max_size=size))
    )
    numbers = np.array(data.draw(st.lists(st.integers(-60, 60))), np.float64) / 10
    cells = cells_of(numbers.astype(kind), cuts)
    assert cells.dtype == np.int64
    assert cells.tolist() == [bisect.bisect_right(cuts, number) for number in numbers.astype(kind).tolist()]


CATEGORIES = [
    (pa.string(), ["a", "", "\u00e9", "e\u0301", "True", "1"], ["b", None, "A", "a "]),
    (pa.large_string(), ["a"], ["b", None]),
    (pa.dictionary(pa.int8(), pa.string()), ["a", "é"], ["b", None]),
    (pa.int8(), [1, -128, 2**40], [0, None, 127]),
    (pa.int64(), [2**53 + 1, -(2**63)], [2**53, 2**53 + 2, None]),
    (pa.uint64(), [2**64 - 1, 0, -1], [2**53, None]),
    (pa.bool_(), [True], [False, None]),
    (pa.date32(), [DAY], [DAY + datetime.timedelta(1), None]),
    (pa.date64(), [DAY], [DAY + datetime.timedelta(1), None]),
    (pa.null(), ["a"], [None]),
]


@st.composite
def categories(draw):
    kind, listed, others = draw(st.sampled_from(CATEGORIES))
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    fitting = [value for value in listed if _fits(value, plain)]
    return kind, listed, draw(st.lists(st.sampled_from([*fitting, *others])))


def _fits(value, kind):
    try:
        pa.array([value], kind)
    except (pa.ArrowException, OverflowError):
        return False
    return True


@given(categories())
def test_a_category_is_the_listed_value_that_equals_it_or_another(drawn):
    kind, listed, values = drawn
    feature = Category(column="x", most=7)
    found = encoder({"x": feature}, vocabulary={"x": listed}).encode(pa.table({"x": array_of(kind, values)}))
    assert found.shape == (len(values), 9)
    places = [listed.index(value) if value in listed else 7 for value in values]
    assert found.tolist() == [[1.0] + [float(place == at) for at in range(8)] for place in places]


@pytest.mark.parametrize(
    ("kind", "values", "listed"),
    [
        (pa.int64(), [1, 0], [True, "1"]),
        (pa.bool_(), [True, False], [1, 0, "true"]),
        (pa.string(), ["1", "True", "2026-01-31"], [1, True, DAY]),
        (pa.date32(), [DAY], ["31.01.2026", "2026-1-31", 20484]),
    ],
)
def test_values_of_different_kinds_are_never_the_same(kind, values, listed):
    feature = Category(column="x", most=7)
    found = encoder({"x": feature}, vocabulary={"x": listed}).encode(pa.table({"x": pa.array(values, kind)}))
    assert found[:, -1].tolist() == [1.0] * len(values)


def test_declared_days_are_written_as_text():
    days = encoder({"x": Category(column="x", categories=["2026-01-31"])})
    assert days.encode(pa.table({"x": pa.array([DAY, None], pa.date32())}))[:, 1].tolist() == [1.0, 0.0]


def test_text_that_is_not_text_and_days_beyond_all_days_are_others():
    broken = pa.StringArray.from_buffers(1, pa.array([0, 1], pa.int32()).buffers()[1], pa.py_buffer(b"\xff"))
    assert encoder({"x": Category(column="x", categories=["a"])}).encode(pa.table({"x": broken})).tolist() == [
        [1, 0, 1]
    ]
    far = pa.array([2**62, -(2**62)], pa.int64()).view(pa.date64())
    assert encoder({"x": Category(column="x", most=1)}, vocabulary={"x": [DAY]}).encode(pa.table({"x": far}))[
        :, 2
    ].tolist() == [1, 1]


ALL = {
    "visits": Number(column="visits", min_value=0, max_value=60, bins=4, scaled=True),
    "price": Number(column="price", min_value=-1e299, max_value=1e299, edges=[0]),
    "one bin": Number(column="price", min_value=0, max_value=1, bins=1, scaled=True),
    "age": Category(column="age", most=3),
    "open": Category(column="open", categories=[True, False]),
    "day": Category(column="day", categories=["2026-01-31"]),
}
LABELS = [
    BinaryLabel(column="y"),
    ClassLabel(column="y", classes=["a", "b"]),
    NumberLabel(column="y", min_value=-1, max_value=2),
]


PAIRS = [("age", "visits"), ("day", "price"), ("open", "visits")]


def whole(label=LABELS[0], pairs=()):
    return encoder(ALL, label, pairs, edges={"visits": [3, 3, 3.5]}, vocabulary={"age": ["B", "free place 1"]})


rows = st.fixed_dictionaries(
    {
        "visits": st.integers(-5, 70) | st.none(),
        "price": st.floats() | st.none(),
        "age": st.sampled_from(["A", "B", None]),
        "open": st.booleans() | st.none(),
        "day": st.sampled_from([DAY, None]),
    }
)
SCHEMA = pa.schema(
    [
        ("visits", pa.int64()),
        ("price", pa.float64()),
        ("age", pa.string()),
        ("open", pa.bool_()),
        ("day", pa.date32()),
    ]
)


@given(st.lists(rows, max_size=8), st.integers(0, 8), st.sampled_from([(), PAIRS]))
def test_a_row_depends_on_itself_alone_and_stays_within_the_stated_norm(listed, at, pairs):
    table, made = pa.Table.from_pylist(listed, SCHEMA), whole(pairs=pairs)
    found = made.encode(table)
    assert found.shape == (len(listed), made.width)
    assert made.width == task(ALL, pairs=pairs).width
    assert np.array_equal(np.rint(found * 2.0**16), found * 2.0**16)
    assert (np.linalg.norm(found.astype(np.float64), axis=1) <= made.row_norm).all()
    alone = np.concatenate([made.encode(table.slice(0, at)), made.encode(table.slice(at))])
    assert alone.tobytes() == found.tobytes()


@pytest.mark.parametrize("pairs", [(), PAIRS], ids=["alone", "pairs"])
def test_the_norm_is_reached(pairs):
    row, made = pa.Table.from_pylist([{"visits": 60, "price": 1.0}], SCHEMA), whole(pairs=pairs)
    assert np.linalg.norm(made.encode(row).astype(np.float64)) == pytest.approx(made.row_norm, rel=1e-12)


@given(st.lists(rows, max_size=8))
def test_a_pair_is_the_product_of_its_features_columns(listed):
    """And the columns before it are those of a model without pairs."""
    table, made, plain = pa.Table.from_pylist(listed, SCHEMA), whole(pairs=PAIRS), whole()
    found, at = made.encode(table), plain.width
    assert np.array_equal(found[:, :at], plain.encode(table))
    for first, second in PAIRS:
        one, other = (found[:, list(made.one_of[sorted(ALL).index(name)])] for name in (first, second))
        product = (one[:, :, None] * other[:, None, :]).reshape(len(listed), one.shape[1] * other.shape[1])
        assert np.array_equal(found[:, at : at + product.shape[1]], product)
        assert (product.sum(axis=1) == 1).all()
        at += product.shape[1]
    assert at == made.width
    for column, parts in made.parts:
        assert np.array_equal(found[:, column], found[:, list(parts)].sum(axis=1))


def test_names_of_cells_are_those_of_both_columns_and_all_different():
    made = whole(pairs=PAIRS)
    assert len(set(made.names)) == len(made.names) == made.width
    assert made.names[whole().width :][:4] == (
        "age = B and visits below 3",
        "age = B and visits in [3, 3)",
        "age = B and visits in [3, 3.5)",
        "age = B and visits from 3.5",
    )
    assert made.names[: whole().width] == whole().names
    assert [len(columns) for columns in made.one_of[len(ALL) :]] == [4 * 5, 2 * 3, 3 * 5]


def test_a_file_without_pairs_is_as_it_was():
    assert list(whole().to_json()) == ["label", "features", "edges", "vocabulary"]
    assert whole(pairs=PAIRS).to_json()["pairs"] == [list(pair) for pair in PAIRS]


NUMBERS_ALONE = {
    "a": Number(column="a", min_value=0, max_value=1, bins=2),
    "b": Category(column="b", most=3),
    "line": Number(column="c", min_value=0, max_value=1, bins=1, scaled=True),
}


@pytest.mark.parametrize(
    ("pairs", "field", "message"),
    [
        ("ab", "pairs", "a list of pairs of features; write e.g."),
        ([["a"]], "pairs.0", "must be two names"),
        ([["a", "b"], ["a", "b", "line"]], "pairs.1", "must be two names"),
        (["ab"], "pairs.0", "must be two names"),
        ([["a", 1]], "pairs.0", "must be two names"),
        ([["a", "bb"]], "pairs.0", "names 'bb', which is no feature; did you mean 'b'"),
        ([["a", "a"]], "pairs.0", "names 'a' twice"),
        ([["a", "b"], ["b", "a"]], "pairs.1", "stands there already"),
        ([["a", "line"]], "pairs.0", "names 'line', whose single bin"),
    ],
)
def test_pairs_that_are_none_are_refused(pairs, field, message):
    with pytest.raises(RequestError, match=message) as caught:
        task(NUMBERS_ALONE, pairs=pairs)
    assert caught.value.field == field


def test_pairs_that_take_too_many_columns_are_refused_and_those_at_the_limit_are_not():
    features = {name: Category(column=name, most=most) for name, most in {"a": 29, "b": 29, "c": 60, "d": 1}.items()}
    assert task(features, pairs=[("a", "b")]).width == 1 + 30 + 30 + 61 + 2 + 30 * 30 == 1024
    too_many = r"1084 columns \(960 of them for pairs\), more than the limit of 1024; use fewer pairs"
    with pytest.raises(RequestError, match=too_many):
        task(features, pairs=[("a", "b"), ("a", "d")])


@pytest.mark.parametrize("pairs", [(), PAIRS], ids=["alone", "pairs"])
@pytest.mark.parametrize("label", LABELS, ids=["binary", "classes", "number"])
def test_an_encoder_comes_back_from_json_as_it_was(label, pairs):
    made = whole(label, pairs)
    again = Encoder.from_json(json.loads(json.dumps(made.to_json(), allow_nan=False)))
    assert again == made
    assert again.names == made.names


@pytest.mark.parametrize("values", [["a", "1", "True"], [2**53 + 1, 1], [True, False], [DAY, datetime.date(1, 1, 1)]])
def test_categories_of_all_kinds_come_back_from_json(values):
    made = encoder({"x": Category(column="x", most=5)}, vocabulary={"x": values})
    again = Encoder.from_json(json.loads(json.dumps(made.to_json())))
    assert [(type(value), value) for value in again.vocabulary["x"]] == [(type(value), value) for value in values]


def damaged(*path, value=None):
    content = json.loads(json.dumps(whole(LABELS[1]).to_json()))
    inner = content
    for step in path[:-1]:
        inner = inner[step]
    if value is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return content


@pytest.mark.parametrize(
    "content",
    [
        None,
        [],
        {},
        damaged("label"),
        damaged("label", "kind", value="pickle"),
        damaged("label", "kind", value=[]),
        damaged("features", "age", "kind", value="number"),
        damaged("features", "age", "more", value=1),
        damaged("edges", "visits", value=[1, 2]),
        damaged("edges", "visits", value=[3, 2, 1]),
        damaged("edges", "visits", value=[1, 2, 99]),
        damaged("edges", "visits", value=[1, 2, "nan"]),
        damaged("edges", "price", value=[1]),
        damaged("vocabulary", "age", value=[["date", "x"]]),
        damaged("vocabulary", "age", value=[["text", "a"]] * 2),
        damaged("vocabulary", "age", value=[["text", str(i)] for i in range(4)]),
        damaged("vocabulary", "age"),
        damaged("pairs", value=[["age"]]),
        damaged("pairs", value=[["age", "sex"]]),
        damaged("pairs", value={"age": "visits"}),
    ],
)
def test_json_that_is_no_encoder_is_refused(content):
    with pytest.raises(RequestError, match="is no encoder"):
        Encoder.from_json(content)


NAN = math.nan


@pytest.mark.parametrize(
    ("label", "kind", "values", "wanted"),
    [
        (LABELS[0], pa.bool_(), [True, False, None], [1, 0, NAN]),
        (LABELS[0], pa.int64(), [1, 0, 2, -1, None, 2**53 + 1], [1, 0, NAN, NAN, NAN, NAN]),
        (LABELS[0], pa.float64(), [1.0, -0.0, 0.5, math.nan, math.inf, None], [1, 0, NAN, NAN, NAN, NAN]),
        (LABELS[0], pa.null(), [None], [NAN]),
        (LABELS[1], pa.string(), ["b", "a", "c", None], [1, 0, NAN, NAN]),
        (LABELS[1], pa.dictionary(pa.int8(), pa.string()), ["b", None], [1, NAN]),
        (LABELS[2], pa.float64(), [0.5, -math.inf, math.inf, math.nan, None, 1e308], [0.5, -1, 2, NAN, NAN, 2]),
        (LABELS[2], pa.int64(), [7, -7, 1, None], [2, -1, 1, NAN]),
        (LABELS[2], pa.bool_(), [True, None], [1, NAN]),
    ],
)
def test_a_label_is_a_number_or_not_there(label, kind, values, wanted):
    found = encoder(label=label, edges={"x": [0] * 4}).labels(pa.table({"y": array_of(kind, values)}))
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, np.array(wanted, float))
    assert not np.signbit(found[found == 0]).any()


@pytest.mark.parametrize("size", [0, 5])
def test_columns_of_nulls_and_no_rows_at_all_are_encoded(size):
    table = pa.table({field.name: pa.nulls(size, field.type) for field in SCHEMA}).append_column("y", pa.nulls(size))
    assert whole().encode(table).shape == (size, whole().width)
    assert np.isnan(whole().labels(table)).all()


def schema(**kinds):
    return pa.schema([("u", pa.int64()), *({"y": pa.bool_(), "x": pa.int64()} | kinds).items()])


@pytest.mark.parametrize(
    ("feature", "kind"),
    [
        *[(Number(column="x", min_value=0, max_value=1), kind) for kind, _ in NUMBERS],
        *[(Category(column="x", most=5), kind) for kind, _, _ in CATEGORIES],
        (Category(column="x", categories=["a"]), pa.string()),
        (Category(column="x", categories=["2026-01-31"]), pa.date64()),
        (Category(column="x", categories=[300]), pa.int8()),
    ],
)
def test_types_that_fit_are_not_refused(feature, kind):
    assert wrong_types(schema(x=kind), task({"a feature": feature})) == {}


@pytest.mark.parametrize(
    ("feature", "kind", "message"),
    [
        *[
            (Number(column="x", min_value=0, max_value=1), kind, "is no number")
            for kind in (pa.timestamp("us"), pa.date32(), pa.string(), pa.list_(pa.int64()), pa.time32("s"))
        ],
        *[
            (Category(column="x", most=5), kind, "is no category")
            for kind in (pa.float32(), pa.decimal128(5, 2), pa.timestamp("us"), pa.binary(), pa.list_(pa.string()))
        ],
        *[
            (Category(column="x", categories=[value]), kind, "a declared value is none of them")
            for value, kind in (
                ("1", pa.int64()),
                (1, pa.string()),
                (True, pa.int64()),
                (1, pa.bool_()),
                (1.5, pa.int64()),
                ("31.1.2026", pa.date32()),
            )
        ],
        (Category(column="elsewhere", most=5), pa.string(), "is not a column"),
        (Category(column="u", most=5), pa.string(), "privacy unit"),
    ],
)
def test_a_feature_that_cannot_be_one_is_refused_by_its_type(feature, kind, message):
    wrong = wrong_types(schema(x=kind), task({"a feature": feature}))
    assert list(wrong) == ["a feature"]
    assert wrong["a feature"].field == f"column {feature.column!r}"
    assert message in wrong["a feature"].message


@pytest.mark.parametrize(
    ("label", "kind", "message"),
    [
        (LABELS[0], pa.string(), "neither true nor false"),
        (LABELS[0], pa.date32(), "neither true nor false"),
        (LABELS[1], pa.float64(), "is no category"),
        (LABELS[1], pa.int64(), "a declared value is none of them"),
        (LABELS[2], pa.string(), "is no number"),
        (BinaryLabel(column="z"), pa.bool_(), "is not a column"),
        (BinaryLabel(column="u"), pa.bool_(), "privacy unit"),
    ],
)
def test_a_label_that_cannot_be_one_is_refused_by_its_type(label, kind, message):
    wrong = wrong_types(schema(y=kind), task(label=label))
    assert list(wrong) == ["label"]
    assert message in wrong["label"].message


def test_a_table_of_other_types_is_refused_and_quotes_no_value():
    with pytest.raises(RequestError, match="column 'x': has type string") as caught:
        NUMBER.encode(pa.table({"x": ["secret"]}))
    assert "secret" not in str(caught.value)


UNITS = 200_000


def is_far(found, share):
    """Whether a number of held-out units is more than 6.2 standard deviations off: below 1e-9 by chance."""
    return abs(found - UNITS * share) > 6.2 * math.sqrt(UNITS * share * (1 - share))


@pytest.mark.parametrize("share", [0.2, 0.5, 0.001])
def test_each_unit_is_held_out_with_the_probability_of_the_share(share):
    chosen = [split([pa.array(np.arange(UNITS))], key=key, held_out=share) for key in (b"one", b"other")]
    assert not any(is_far(found.sum(), share) for found in chosen)
    # Another plan holds out others: both together have the probability of independent choices.
    assert not is_far((chosen[0] & chosen[1]).sum(), share**2)
    assert is_far((chosen[0] & chosen[0]).sum(), share**2)


@pytest.mark.parametrize("salt", ["its own", 0, 1, 2**64 - 1])
def test_who_is_held_out_is_independent_of_every_hash_that_may_bound_contributions(salt, monkeypatch):
    """Whatever salt bounds them, that of the plan itself included: first among equals must not mean held out."""
    units, real, seen = pa.array(np.arange(UNITS)), splits._hashes, []
    monkeypatch.setattr(splits, "_hashes", lambda *given: seen.append(real(*given)) or seen[-1])
    found = split([units], key=b"one", held_out=0.2)
    bounding = np.concatenate(seen) if salt == "its own" else hashing.hash_columns([units], salt)
    first = bounding < np.uint64(0.2 * 2.0**64)
    assert not is_far(first.sum(), 0.2)
    assert not is_far((found & first).sum(), 0.2**2)
    assert is_far((first & first).sum(), 0.2**2)


def test_the_measure_of_shares_finds_one_that_is_off_by_a_thirtieth():
    assert is_far(split([pa.array(np.arange(UNITS))], key=b"k", held_out=0.2 * 31 / 30).sum(), 0.2)


def test_a_unit_is_held_out_whatever_its_columns_are_written_as():
    numbers = list(range(100))
    by_type = [
        split([pa.array(numbers, kind)], key=b"k", held_out=0.5) for kind in (pa.int8(), pa.int64(), pa.uint64())
    ]
    assert all(np.array_equal(by_type[0], other) for other in by_type)
    text = pa.array([str(number) for number in numbers])
    wanted = split([text], key=b"k", held_out=0.5)
    assert 0 < wanted.sum() < 100
    for other in (text.cast(pa.large_string()), text.dictionary_encode(), pa.chunked_array([text[:7], text[7:]])):
        assert np.array_equal(split([other], key=b"k", held_out=0.5), wanted)
    assert np.array_equal(split([text.take(pa.array(numbers[::-1]))], key=b"k", held_out=0.5), wanted[::-1])
