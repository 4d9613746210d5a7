"""The digest of a plan is that of its JSON text, however long its public lists are.

In: lists of keys of many types, in pieces of a few. Out: digests. Holds: they are those of `json.dumps` of the whole.
"""

import datetime
import decimal
import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines import PublicPartitions
from dp_pipelines.kernels.columns.listed_keys import described
from dp_pipelines.planning import json_digest
from dp_pipelines.planning.json_digest import LongList, keys_to_json

TEXT = st.text(st.characters(codec="utf-8") | st.sampled_from("\"'\\/<>\n\0 ~\x7f"), max_size=6) | st.just("shop 7")
VALUES: list[st.SearchStrategy[Any]] = [
    st.integers(-(2**63), 2**64 - 1), st.text("ab -~!#", max_size=5), TEXT, st.booleans(), st.dates(), st.none(),
    st.sampled_from([decimal.Decimal("1.50"), datetime.datetime(2026, 1, 5), 1, 1.0, "1"]),
]  # fmt: skip


@st.composite
def lists(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    parts = [st.none() | draw(st.sampled_from(VALUES)) for _ in range(draw(st.integers(1, 3)))]
    return draw(st.lists(st.tuples(*parts), min_size=1, max_size=20))


@given(lists(), lists(), st.integers(1, 5))
def test_a_digest_is_that_of_the_whole_text(
    first: list[tuple[Any, ...]], second: list[tuple[Any, ...]], at_once: int
) -> None:
    some, others = PublicPartitions(keys=first).keys, PublicPartitions(keys=second).keys

    def content(listed: Any) -> dict[str, Any]:
        return {"z": listed(some), "queries": {"b": [listed(others), 1], "a": listed(some)}, "n": None}

    def long_list(keys: Any) -> LongList:
        return LongList(PublicPartitions(keys=sorted(keys, key=described)).keys)

    whole = json.dumps(content(keys_to_json), sort_keys=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_digest, "AT_ONCE", at_once)
        assert json_digest.sha256(content(long_list)) == hashlib.sha256(whole.encode()).hexdigest()
        assert isinstance(keys_to_json([("a",)] * (at_once + 1)), LongList)


def test_the_text_says_types() -> None:
    assert keys_to_json([(1, None), ("1", True)]) == [["int:1", "NoneType:None"], ["str:'1'", "bool:True"]]


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(TypeError, match="set is none of JSON's"):
        json_digest.sha256({"a": set()})
