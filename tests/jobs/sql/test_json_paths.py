"""Paths into JSON: those that the grammar accepts find values that never overlap, and all others are refused with a hint.

In: drawn paths, documents that are deep or wide. Out: the bytes of what DuckDB finds, refusals. Holds: an accepted path costs no
more than the text is long. Not covered: other functions (test_hostile_rows.py).
"""

import re

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.sql import guards
from dp_pipelines.jobs.sql.expressions import bind
from tests.helpers.examples import examples

SCHEMA = pa.schema([("id", pa.int64()), ("doc", pa.string())])
LEVELS = 300
DOCUMENTS = [
    '{"a":' * LEVELS + "1" + "}" * LEVELS,
    "[" * LEVELS + "1" + "]" * LEVELS,
    '{"a":[' * LEVELS + "1" + "]}" * LEVELS,
    '{"a":{' + ",".join(f'"k{n}":[{n},"{n}"]' for n in range(200)) + '},"*":1,"**":{"a":[1,2]},".":2,"$":3}',
]
NAMES = st.sampled_from(["a", "k1", "a b", "é", "$", "#", "a-b", "'", "x" * 40])
STEPS = st.one_of(
    NAMES.map(".{}".format), NAMES.map('."{}"'.format), st.just('."a.b[0]"'), st.just(".*"), st.just("[*]"),
    st.integers(0, 99).map("[{}]".format), st.integers(0, 99).map("[#-{}]".format), st.just("[#]"),
)  # fmt: skip
ACCEPTED = st.one_of(
    st.lists(STEPS, max_size=6).map(lambda steps: "$" + "".join(steps)),
    st.lists(NAMES, min_size=1, max_size=4).map(lambda names: "".join(f"/{name}" for name in names)),
    st.sampled_from(["a", "a b", "0", "-1", "é", "a.b", "#"]),
)


def bound(path: str) -> None:
    """Check an expression with a path. Raises: RequestError."""
    quoted = path.replace("'", "''")
    bind(None, {"x": f"CAST(json_extract_string(doc, '{quoted}') AS VARCHAR)"}, SCHEMA, unit=["id"], values={})


def overlapping(path: str) -> list[int]:
    """The documents in which a path finds more bytes than they have."""
    found = []
    with duckdb.connect() as connection:
        for number, document in enumerate(DOCUMENTS):
            (values,) = connection.execute("SELECT json_extract(?, ?)", [document, path]).fetchone() or (None,)
            texts = values if isinstance(values, list) else [values]
            if sum(len((text or "").encode()) for text in texts) > len(document.encode()):
                found.append(number)
    return found


@settings(max_examples=examples(25, 1000), deadline=None)
@given(ACCEPTED)
def test_accepted_paths_find_no_more_than_the_text_holds(path: str) -> None:
    bound(path)
    assert overlapping(path) == []


@settings(max_examples=examples(150, 5000), deadline=None)
@given(st.text('$.*[]#"/a0-\\ ', max_size=8))
def test_a_path_is_refused_or_finds_no_more_than_the_text_holds(path: str) -> None:
    if not guards._JSON_PATH.fullmatch(path):
        return
    try:
        assert overlapping(path) == []
    except duckdb.Error:
        with pytest.raises(RequestError):
            bound(path)


@pytest.mark.parametrize(
    "path",
    [
        "$.**", "$.**.a", "$.a.**", "$..a", "$.a..b", "$.*.**", '$."a".**', "*", "**", "$.a*", '$."*"', "a..b", "/*", "/a*",
        "$.a\\b", "[0]", '"a"', "[**]",
    ],
)  # fmt: skip
def test_other_paths_are_refused_with_a_hint(path: str) -> None:
    with pytest.raises(RequestError, match=r"values can overlap; write the path out, e\.g\. ") as caught:
        bound(path)
    assert caught.value.field == "columns.x"


def test_a_path_that_finds_a_value_and_what_is_inside_it_is_found() -> None:
    assert overlapping("$.**")
    assert re.fullmatch(guards._JSON_PATH, "$.**") is None
