"""The fields of a job that a ledger notes: what is left out, how long texts stay apart, how two jobs are compared."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.jobs.request import job_fields
from dp_pipelines.jobs.spec import job_file
from tests.helpers.examples import examples
from tests.jobs.conftest import Shop, stage

PARTS = st.sampled_from(
    ["a", "b", "stages", "x.y", "", ".", '"', '"a"', '"a', "a.", "\\", 'a"."b', "not\nhere"]
) | st.text(max_size=3)
VALUES = st.recursive(
    st.sampled_from(["1", "2", "", "{}", "(not there)"])
    | st.text(max_size=3)
    | st.lists(st.text(max_size=2), max_size=2),
    lambda inner: st.dictionaries(PARTS, inner, max_size=3),
    max_leaves=8,
)
JOBS = st.dictionaries(PARTS, VALUES, max_size=4)


def fields(shop: Shop, **changes: object) -> dict[str, str]:
    """The fields of the shop's job with some keys changed."""
    return job_fields.fields_of(job_file.load(str(shop.write(**changes))).job)


def words(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """The changes in words."""
    return [change.words for change in job_fields.changes(before, after)]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """A shop with a job file alone."""
    return Shop(tmp_path)


def test_words_for_readers_and_guesses_about_rows_are_no_fields(shop: Shop) -> None:
    plain = fields(shop)
    assert (
        fields(shop, title="Orders", expect={"users": 5}, stages={"weekly": stage(description="All of them")}) == plain
    )
    assert plain["stages.weekly.metrics.revenue.max_value"] == "20"


def test_a_part_that_one_job_lacks_counts_once(shop: Shop) -> None:
    before = fields(shop)
    metrics = {
        "orders": {"kind": "count"},
        "income": {"kind": "sum", "column": "price", "min_value": 0, "max_value": 20},
    }
    after = fields(shop, stages={"weekly": stage(metrics=metrics)}, where="price > 1")
    assert words(before, after) == [
        "where: (not there) -> price > 1",
        "stages.weekly.metrics.income is new",
        "stages.weekly.metrics.revenue is gone",
    ]
    assert job_fields.shares_a_stage(before, after)
    assert not job_fields.shares_a_stage(before, fields(shop, stages={"monthly": stage()}))


def test_long_texts_are_cut_and_stay_different(shop: Shop) -> None:
    long = [f"price > {number}" for number in range(40)]
    one, other = (fields(shop, where=" AND ".join([*long, last])) for last in ("price > 8", "price > 9"))
    assert all(len(text) < 120 for text in (*one.values(), *other.values()))
    assert [change.key for change in job_fields.changes(one, other)] == ["where"]


def revenue(**changes: object) -> dict[str, Any]:
    """The stages of the shop's job, with some keys of the metric `revenue` changed."""
    made: Any = stage()
    made["metrics"]["revenue"].update(changes)
    return {"weekly": made}


LOOKUP = {"csv": "kinds.csv", "on": "product", "types": {"product": "string", "cap": "float"}}
ROLLUP = [["product"], ["product", "store"]]


@pytest.mark.parametrize(
    ("one", "other", "key"),
    [
        (
            {"lookup": LOOKUP, "stages": revenue()},
            {"lookup": LOOKUP, "stages": revenue(max_value={"lookup": "cap", "default": 20})},
            "stages.weekly.metrics.revenue.max_value",
        ),
        ({"lookup": LOOKUP}, {"lookup": [LOOKUP, {**LOOKUP, "csv": "more.csv"}]}, "lookup"),
        (
            {"stages": {"weekly": stage(partition_by=["product", "store"], rollup=ROLLUP)}},
            {
                "stages": {
                    "weekly": stage(partition_by=["product", "store"], rollup={"levels": ROLLUP, "shares": [0.5, 0.5]})
                }
            },
            "stages.weekly.rollup",
        ),
    ],
    ids=["a bound", "a lookup", "a rollup"],
)
def test_a_value_that_becomes_a_mapping_or_a_list_is_one_change_of_its_key(
    shop: Shop, one: dict[str, Any], other: dict[str, Any], key: str
) -> None:
    before, after = fields(shop, **one), fields(shop, **other)
    (change,), (back,) = job_fields.changes(before, after), job_fields.changes(after, before)
    assert (change.key, back.key) == (key, key)
    assert (change.before, change.after) == (back.after, back.before)
    assert change.before[0] != change.after[0]


def test_the_words_of_a_value_that_becomes_a_mapping_have_both(shop: Shop) -> None:
    before = fields(shop, lookup=LOOKUP)
    after = fields(shop, lookup=LOOKUP, stages=revenue(max_value={"lookup": "cap", "default": 20}))
    assert words(before, after) == ["stages.weekly.metrics.revenue.max_value: 20 -> {lookup: cap, default: 20.0}"]


def test_names_with_dots_and_quotes_are_one_part_of_a_key(shop: Shop) -> None:
    columns = {"net": "price", "net.eur": "price / 1.2", 'the "net"': "price / 1.3"}
    before, after = (
        fields(shop, columns=columns),
        fields(shop, columns={**columns, "net.eur": "price / 2", "net": "price / 3"}),
    )
    assert words(before, after) == [
        "columns.net: price -> price / 3",
        'columns."net.eur": price / 1.2 -> price / 2',
    ]
    assert words(before, fields(shop, columns={"net.eur": "price / 1.2"})) == [
        "columns.net: price -> (not there)",
        'columns."the \\"net\\"": price / 1.3 -> (not there)',
    ]


def test_stages_with_dots_in_their_names_are_others() -> None:
    one, other = ({job_fields.to_key(("stages", name, "kind")): "aggregate"} for name in ("a.b", "a.c"))
    assert job_fields.shares_a_stage(one, one)
    assert not job_fields.shares_a_stage(one, other)


@given(path=st.lists(PARTS, max_size=4).map(tuple))
@settings(max_examples=examples(300, 3000), deadline=None)
def test_a_key_has_the_parts_that_it_was_made_of(path: tuple[str, ...]) -> None:
    if path:
        assert job_fields.to_path(job_fields.to_key(path)) == path
    assert (job_fields.to_key(path) == "") == (not path)


@given(before=JOBS, after=JOBS)
@settings(max_examples=examples(300, 3000), deadline=None)
def test_there_is_a_change_where_fields_differ_and_none_where_they_are_equal(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    one, other = (dict(job_fields.flat_fields(job)) for job in (before, after))
    assert len(one) == len(list(job_fields.flat_fields(before))), "two fields have one key"
    found = job_fields.changes(one, other)
    assert bool(found) == (one != other)
    assert {change.key for change in found} == {change.key for change in job_fields.changes(other, one)}
    assert job_fields.changes(one, one) == []
    assert not any(character in change.words for change in found for character in "\n\r\x1b\u2028")


@given(
    before=st.dictionaries(st.text(max_size=6), st.text(max_size=3)),
    after=st.dictionaries(st.text(max_size=6), st.text(max_size=3)),
)
@settings(max_examples=examples(300, 3000), deadline=None)
def test_no_keys_that_a_ledger_holds_are_an_error(before: dict[str, str], after: dict[str, str]) -> None:
    assert all(change.words for change in job_fields.changes(before, after))
    job_fields.shares_a_stage(before, after)


def test_line_breaks_are_escaped_and_long_keys_and_values_are_cut() -> None:
    long = "c" * 3000
    assert len(job_fields.FieldChange(key="\n" * 300, before="\n" * 300, after="\n" * 300).words) < 300
    (change,) = job_fields.changes({"k": "a"}, {"k": "b\nnote: it costs epsilon 0\u2028\x1b[2J"})
    assert change.words == "k: a -> b\\u000anote: it costs epsilon 0\\u2028\\u001b[2J"
    for one, other in (({}, {f"x.{long}.end": long}), ({f"k\n{long}": long}, {f"k\n{long}": "b"})):
        for change in job_fields.changes({"stages": "1", **one}, {"stages": "1", **other}):
            assert len(change.words) < 300
            assert "\n" not in change.words
    assert job_fields.FieldChange(key=f"x.{long}.end", after="1").words.endswith("c.end:  -> 1")
