"""What limits cut off, in sentences: of any manifest, and never more than it says."""

from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.report import kept_text

KNOWN = {"share": 0.5, "stddev": 0.01}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["whole", "rows", "values", "facts", "share", "stddev", "fact", "column", "low", "high", "below", "at_most"]
    ), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(kept=JSON, unit=st.text(max_size=8))
def test_no_manifest_crashes_it(kept, unit) -> None:
    assert all(isinstance(line, str) and "\n" not in line for line in kept_text.lines(kept, unit))


def test_a_column_that_is_wholly_null_is_pointed_at() -> None:
    facts = [
        {"fact": "not_null", "column": name, "share": share, "stddev": 0.01} for name, share in (("a", 0.0), ("b", 0.6))
    ]
    said = kept_text.lines({"facts": facts}, "customer")
    assert "a looks wholly null: check its type and format" in said
    assert not any(line.startswith("b looks") for line in said)


def test_an_upper_bound_is_said_to_be_one_and_an_unknown_share_to_be_unknown() -> None:
    for at_most, share in (
        (True, "at most 50% (± 3%) of rows are counted"),
        (False, "about 50% (± 3%) of the rows of customers with fewer than 512 rows are counted"),
    ):
        rows = {**KNOWN, "at_most": at_most, "fewer_than": 512}
        (line,) = kept_text.lines({"whole": {"share": None}, "rows": rows}, "customer")
        assert line == f"an unknown share of customers fall wholly within the limits; {share}"


def test_filters_and_clamps_are_said() -> None:
    values = [{"column": "price", "low": 0.0, "high": 1000.0, "below": KNOWN, "within": KNOWN, "above": KNOWN}]
    facts = [{"fact": "where", "column": None, **KNOWN}, {"fact": "lookup", "column": None, **KNOWN}]
    said = kept_text.lines({"values": values, "facts": facts}, "value of customer")
    assert said[1:] == [
        "price of one counted row of each customer: 50% (± 3%) within its range, 50% (± 3%) below 0, "
        "50% (± 3%) above 1,000",
        "of one row of each customer, 50% (± 3%) pass `where` and 50% (± 3%) are found in the lookup table",
    ]


def test_no_share_passes_100_percent_and_none_that_noise_may_have_made_is_told_as_one() -> None:
    rows = {"share": 1.0, "stddev": 0.01, "at_most": False, "fewer_than": 512}
    (line,) = kept_text.lines({"whole": {"share": 0.999, "stddev": 0.001}, "rows": rows}, "customer")
    assert line == (
        "99.6% to 100% of customers fall wholly within the limits; "
        "97% to 100% of the rows of customers with fewer than 512 rows are counted"
    )
    (line,) = kept_text.lines({"rows": {**rows, "at_most": True}}, "customer")
    assert line.endswith("; at most 100% of rows are counted")
    sides = {"within": {"share": 0.975, "stddev": 0.002}, "above": {"share": 0.02, "stddev": 0.002}}
    values = [{"column": "price", "low": 0.0, "high": 60.0, "below": {"share": 0.002, "stddev": 0.002}, **sides}]
    said = kept_text.lines({"values": values}, "customer")
    assert said[1].endswith("97.5% (± 0.5%) within its range, none measurably below 0, 2.0% (± 0.5%) above 60")


def test_customers_that_the_noise_would_hide_are_named_where_they_would_matter() -> None:
    rows = {"share": 1.0, "stddev": 0.002, "at_most": False, "fewer_than": 4096}
    (line,) = kept_text.lines({"rows": {**rows, "hides": 60}}, "customer")
    end = "rows of customers with fewer than 4,096 rows are counted"
    assert line.endswith(f"{end} (the noise would hide up to 60 customers with far more than most)")
    (line,) = kept_text.lines({"rows": {**rows, "hides": 0}}, "customer")
    assert line.endswith(end)
