"""Text of a job file to plain data, with the line of every key and value kept beside it.

In: YAML or JSON text. Out: a `Document`: dicts, lists, text, numbers, booleans and None, and from the path of each of them to
its line. Holds: plain values follow the core schema of YAML 1.2, so `on`, `yes`, `12:30` and dates stay text and `1e-6` is a
number; a doubled key, a tag, a second document or a key that is not text is refused with `file:line`. The data are never
changed to carry lines. Not covered: what the keys mean (`job_file`).
"""

import dataclasses
import json
import re
from typing import Any

import yaml

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec.content import MOST_DEPTH, Content, Path

MOST_NODES = 200_000
"""A job file is small; aliases that multiply stop here."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Document(Content):
    """Data of a file, and lines.

    Args:
        data: plain Python data.
        name: the file as the user wrote it; it stands in messages.
        lines: from a path of keys and indices to a line, counted from 1: of the key where there is one, else of the value.
        text: of the file.
    """

    name: str
    lines: dict[Path, int]
    text: str = dataclasses.field(default="", repr=False)

    @property
    def in_file(self) -> bool:
        """A file says it."""
        return True

    def where(self, path: Path) -> str:
        r"""`file:line` of a path, or of the nearest thing around it that is there.

        >>> parse("budget:\n  epsilon: 1\n", "job.yaml").where(("budget", "delta"))
        'job.yaml:1'
        """
        while path and path not in self.lines:
            path = path[:-1]
        return f"{self.name}:{self.lines.get(path, 1)}"

    def named(self, path: Path, field: str) -> str:
        """How a message names a field: `file:line` and its path."""
        return f"{self.where(path)}: {field}"

    def inside(self, path: Path, field: str, offset: int | None, words: str) -> str:
        """As `file:line:column` of the file where the text stands there as it is, else as line and column of the text."""
        value: Any = self.data
        for step in path:
            value = value[step]
        span = None if offset is None else spans(self.text).get(path)
        place = None if span is None or offset is None else place_inside(self.text, span, value, offset)
        if place is None:
            return f"{self.where(path)}: {field}{words}"
        before = self.text[:place]
        return f"{self.name}:{before.count(chr(10)) + 1}:{place - before.rfind(chr(10))}: {field}"


class _Loader(yaml.SafeLoader):
    """SafeLoader with the resolvers of the YAML 1.2 core schema only."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own interface


_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"(?:~|null|Null|NULL|)\Z"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), list("tTfF")
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z"), list("-+0123456789")
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
    ),
    list("-+.0123456789"),
)


LARGEST = 4 * 2**20
"""Bytes of a file, and characters of a text, that are parsed: the parser takes a second for some MB."""


def too_large(name: str) -> RequestError:
    """Return the refusal of a file that is larger than `LARGEST`."""
    return RequestError(field=name, message="is larger than 4 MiB", hint="put long public lists into a public_file")


def parse(text: str, name: str) -> Document:
    r"""Read one YAML or JSON document (JSON where the name ends in `.json`).

    Raises:
        RequestError: the text is too large, or no such document; the field is then `file:line`.

    >>> parse("on: yes\ndelta: 1e-6\n", "job.yaml").data
    {'on': 'yes', 'delta': 1e-06}
    """
    if len(text) > LARGEST:
        raise too_large(name)
    if name.lower().endswith(".json"):
        _check_json(text, name)
        # Raw tabs in JSON are white space only, which PyYAML does not take before a token.
        text = text.replace("\t", " ")
    try:
        loader = _Loader(text)
    except yaml.YAMLError:
        raise _refused(name, 1, "is not valid YAML: it holds a character that is not allowed") from None
    try:
        root = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "is not YAML"
        raise _refused(name, mark.line + 1 if mark else 1, f"is not valid YAML: {problem}") from None
    except RecursionError:
        raise _refused(name, 1, f"is nested more than {MOST_DEPTH} levels deep") from None
    finally:
        loader.dispose()
    if root is None:
        raise _refused(name, 1, "is empty", "write a job; `dp-pipelines run --help` shows one")
    reader = _Reader(name)
    data = reader.read(root, ())
    return Document(name=name, data=data, lines=reader.lines, text=text)


def spans(text: str) -> dict[Path, tuple[int, int]]:
    r"""Where in a text that `parse` takes each scalar value stands: from which letter to before which.

    >>> spans("budget: {epsilon: 1.5}\n")[("budget", "epsilon")]
    (18, 21)
    """
    loader = _Loader(text)
    try:
        root = loader.get_single_node()
    finally:
        loader.dispose()
    assert root is not None, "parse refuses an empty text"
    found: dict[Path, tuple[int, int]] = {}

    def walk(node: yaml.Node, path: Path) -> None:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                walk(value, (*path, key.value))
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                walk(value, (*path, index))
        else:
            found[path] = (node.start_mark.index, node.end_mark.index)

    walk(root, ())
    return found


def place_inside(text: str, span: tuple[int, int], value: str, offset: int) -> int | None:
    r"""Where a character of a value stands in the text that says it; None where it cannot be told.

    Args:
        text: of the file.
        span: from where to before where the value stands, as `spans` tells it.
        value: what it says.
        offset: of the character in the value, counted from 0.

    >>> place_inside("a: |\n  one\n  two\n", (3, 18), "one\ntwo\n", 5)
    14
    """
    at, end = span
    if text[at : at + 1] in ("|", ">"):
        at = text.find("\n", at)
    elif text[at : at + 1] in ("'", '"'):
        at += 1
    for index, sign in enumerate([*value, ""]):
        while at < end and text[at].isspace() and (not sign.isspace() or (text[at] == "\n" and index == 0)):
            at += 1  # what indents a line, or folds it
        if index == offset:
            return at if at < end else None
        if text[at : at + 2] in ("''", '\\"', "\\\\") and text[span[0]] in ("'", '"'):
            at += 1
        if not (text[at : at + 1] == sign or (sign.isspace() and text[at : at + 1].isspace())):
            return None
        at += 1
    return None


class _Reader:
    """Turns composed nodes into data and notes their lines."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: dict[Path, int] = {}
        self._nodes = 0

    def read(self, node: yaml.Node, path: Path) -> Any:
        line = node.start_mark.line + 1
        self.lines.setdefault(path, line)
        self._nodes += 1
        if len(path) > MOST_DEPTH:
            raise _refused(self.name, line, f"is nested more than {MOST_DEPTH} levels deep")
        if self._nodes > MOST_NODES:
            raise _refused(self.name, line, f"holds more than {MOST_NODES} values", "do not nest aliases")
        if isinstance(node, yaml.MappingNode):
            self._check_tag(node, "map", line)
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            self._check_tag(node, "seq", line)
            return [self.read(child, (*path, index)) for index, child in enumerate(node.value)]
        return self._scalar(node, line)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        first: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = self._scalar(key_node, line) if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str):
                raise _refused(self.name, line, "has a key that is not text", "put the key in quotes")
            if key in first:
                raise _refused(self.name, line, f"duplicate key {key!r} (first on line {first[key]})")
            first[key] = line
            self.lines[(*path, key)] = line
            result[key] = self.read(value_node, (*path, key))
        return result

    def _check_tag(self, node: yaml.Node, kind: str, line: int) -> None:
        if node.tag != f"tag:yaml.org,2002:{kind}":
            raise _refused(self.name, line, "has a tag, which job files do not use", "drop what starts with `!`")

    def _scalar(self, node: yaml.Node, line: int) -> Any:
        kind = node.tag.removeprefix("tag:yaml.org,2002:")
        value: str = node.value
        if kind == "str":
            try:
                # JSON writes characters beyond 16 bits as two escapes, which PyYAML leaves apart.
                return value.encode("utf-16", "surrogatepass").decode("utf-16")
            except UnicodeDecodeError:
                raise _refused(self.name, line, "holds half a character (a lone surrogate)") from None
        if kind == "null":
            return None
        if kind == "bool":
            return value.lower() == "true"
        try:
            if kind == "int":
                return int(value, {"0o": 8, "0x": 16}.get(value[:2], 10))
            if kind == "float":
                return float(value.lower().replace(".inf", "inf").replace(".nan", "nan"))
        except ValueError:  # thousands of digits, or a tag that does not fit its value
            raise _refused(self.name, line, "is a number that cannot be read") from None
        raise _refused(self.name, line, "has a tag, which job files do not use", "drop what starts with `!`")


def _check_json(text: str, name: str) -> None:
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        raise _refused(name, error.lineno, f"is not valid JSON: {error.msg}") from None
    except (ValueError, RecursionError):  # thousands of digits, thousands of levels
        raise _refused(name, 1, "is not JSON that can be read") from None


def _refused(name: str, line: int, message: str, hint: str = "") -> RequestError:
    return RequestError(field=f"{name}:{line}", message=message, hint=hint)
