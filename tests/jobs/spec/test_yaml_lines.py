"""YAML and JSON with lines: which plain values text becomes, and what is refused."""

import contextlib
import json
import math
import pathlib

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec import job_file, yaml_lines
from dp_pipelines.jobs.spec.yaml_lines import Document, parse


def plain(text: str) -> object:
    """The value of a key."""
    return parse(f"key: {text}\n", "job.yaml").data["key"]


@pytest.mark.parametrize(
    "text", ["on", "off", "yes", "no", "y", "n", "2026-01-05", "12:30", "1_000", "0b1", "=", "<<", "1e", "1.e", "e5"]
)
def test_what_yaml_1_1_would_turn_into_something_else_stays_text(text: str) -> None:
    assert plain(text) == ("1.e" if text == "1.e" else text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-6", 1e-6),
        ("1.0e-6", 1e-6),
        ("1E6", 1e6),
        ("-.5", -0.5),
        ("5.", 5.0),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("010", 10),
        ("0o10", 8),
        ("0x1f", 31),
        ("+3", 3),
        ("99999999999999999999", 99999999999999999999),
        ("true", True),
        ("FALSE", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("'1'", "1"),
        ("[1, a, null]", [1, "a", None]),
    ],
)
def test_plain_values_follow_the_core_schema_of_yaml_1_2(text: str, value: object) -> None:
    found = plain(text)
    assert found == value
    assert type(found) is type(value)


def test_nan_is_a_number_that_is_none() -> None:
    assert math.isnan(plain(".nan"))


def test_every_key_and_item_has_its_line() -> None:
    document = parse("a: 1\nb:\n  - x\n  - c: 2\n    d: 3\n", "job.yaml")
    assert document.where(("a",)) == "job.yaml:1"
    assert document.where(("b", 0)) == "job.yaml:3"
    assert document.where(("b", 1, "d")) == "job.yaml:5"
    assert document.where(("b", 1, "missing", "deeper")) == "job.yaml:4"
    assert document.data == {"a": 1, "b": ["x", {"c": 2, "d": 3}]}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "duplicate key .a. .first on line 1."),
        ("x: {a: 1, a: 2}\n", 1, "duplicate key"),
        ("a: !!python/object/apply:os.system ['true']\n", 1, "tag"),
        ("a: !!binary aGk=\n", 1, "tag"),
        ("a: !own 1\n", 1, "tag"),
        ("a: !!set {x}\n", 1, "tag"),
        ("a: 1\n---\nb: 1\n", 2, "another document"),
        ("a: [1\n", 2, "not valid YAML"),
        ("a: *nowhere\n", 1, "not valid YAML"),
        ("\ta: 1\n", 1, "not valid YAML"),
        ("a: &a [*a]\n", 1, "levels deep"),
        ("a: \x01\n", 1, "not allowed"),
        ("a:\n  1: x\n", 2, "not text"),
        ("? [a]\n: 1\n", 1, "not text"),
        ("", 1, "empty"),
        ("# only a comment\n", 1, "empty"),
        ("a: " + "9" * 5000, 1, "cannot be read"),
        ("[" * 3000, 1, "levels deep"),
    ],
)
def test_what_is_no_plain_document_is_refused_with_its_line(text: str, line: int, words: str) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        parse(text, "job.yaml")
    assert caught.value.field == f"job.yaml:{line}"


def test_aliases_that_multiply_are_stopped() -> None:
    levels = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    levels += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    with pytest.raises(RequestError, match="more than 200000 values"):
        parse("\n".join(levels), "job.yaml")


def test_json_is_read_as_json() -> None:
    text = '{\n\t"a": "\\ud83d\\ude00 on",\n\t"b": [1, 2.5, true, null, 1E5]\n}\n'
    document = parse(text, "job.json")
    assert document.data == json.loads(text)
    assert document.where(("b",)) == "job.json:3"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": 1,}', "not valid JSON"),
        ('{"a": 1, "a": 2}', "duplicate key"),
        ("a: 1", "not valid JSON"),
        ('{"a": "\\ud800"}', "surrogate"),
    ],
)
def test_what_is_not_json_is_refused(text: str, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        parse(text, "job.json")


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), VALUES, max_size=4))
def test_all_json_is_read_as_python_reads_it(data: dict[str, object]) -> None:
    assert parse(json.dumps(data), "job.json").data == data


@given(st.text(max_size=60))
def test_any_text_is_a_document_or_a_request_error(text: str) -> None:
    with contextlib.suppress(RequestError):
        assert isinstance(parse(text, "job.yaml"), Document)


@given(st.dictionaries(st.text(st.characters(codec="ascii"), max_size=5), VALUES, max_size=4))
def test_what_pyyaml_writes_with_quotes_is_read_back(data: dict[str, object]) -> None:
    text = yaml.safe_dump(data, default_style='"', allow_unicode=True)
    if "!!" not in text:
        assert parse(text, "job.yaml").data == data


def test_a_text_above_the_limit_is_refused_before_it_is_parsed() -> None:
    text = "# " + "x" * yaml_lines.LARGEST + "\nkey: [unclosed"
    with pytest.raises(RequestError, match="job.yaml: is larger than 4 MiB; put long public lists into a public_file"):
        parse(text, "job.yaml")
    assert parse("# " + "x" * (yaml_lines.LARGEST - 10) + "\na: 1", "job.yaml").data == {"a": 1}


def test_no_more_of_a_file_is_read_than_the_limit(tmp_path: pathlib.Path) -> None:
    large = tmp_path / "job.yaml"
    with large.open("wb") as file:
        file.truncate(2**40)  # a hole
    with pytest.raises(RequestError, match="is larger than 4 MiB"):
        job_file.content_of(str(large))
