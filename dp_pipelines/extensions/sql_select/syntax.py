"""A SELECT statement as DuckDB's own parser reads it, with the place of every part.

In: a statement. Out: its tree, and `StatementError`s that know line and column. Holds: parameters `{name}` become `$name` of the
same length, so that every place is one of the text as written; a field of the tree that nobody has looked at is refused unless it
is false, null or empty, so that a form that a later DuckDB adds is refused too. Not covered: what the parts mean
(`from_statement`).
"""

import dataclasses
import functools
import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.sql.parse_tree import is_blank, unknown_field

if TYPE_CHECKING:
    import duckdb

Node = Mapping[str, Any]

LONGEST = 50_000
"""Characters of a statement."""

_PLACEHOLDER = re.compile(r"\{([A-Za-z][A-Za-z0-9_]*)\}")
_SETTINGS = (
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)

ONE = "must be one SELECT statement"
DEEP = "is nested too deeply"


class StatementError(RequestError):
    r"""What is wrong with a statement, and where.

    Args:
        message, hint: as for any error.
        offset: the first character that it is about, counted from 0; None where it is about the whole statement.
        text: the statement.

    >>> print(StatementError("is odd", "straighten it", offset=10, text="SELECT a,\n b"))
    SQL line 2, column 1: is odd; straighten it
    """

    def __init__(self, message: str, hint: str = "", *, offset: int | None, text: str) -> None:
        self.offset, self.text = offset, text
        super().__init__(field=f"SQL{self.words}", message=message, hint=hint)

    @property
    def words(self) -> str:
        """The place in words, with a space before it; nothing where it is the whole statement."""
        if self.offset is None:
            return ""
        line, column = line_and_column(self.text, self.offset)
        return f" line {line}, column {column}"

    def __reduce__(self) -> Any:
        return (_error, (self.message, self.hint, self.offset, self.text))


def _error(message: str, hint: str, offset: int | None, text: str) -> StatementError:
    return StatementError(message, hint, offset=offset, text=text)


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    r"""Line and column of a character, counted from 1.

    >>> line_and_column("SELECT a,\n b", 11)
    (2, 2)
    """
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectStatement:
    """A statement and its tree.

    Args:
        text: as it was written.
        parsed: what DuckDB read, where every character has its place.
        node: the tree of its one SELECT.
    """

    text: str
    parsed: str
    node: Node

    def offset(self, node: Node) -> int | None:
        """The first character of a part of the tree; of one without a place, of the first part of it that has one."""
        places = list(self._places(node))
        return min(start for start, _ in places) if places else None

    def span(self, node: Node) -> tuple[int, int] | None:
        """From which character to before which the parts of a part of the tree stand, brackets around it left out."""
        places = list(self._places(node))
        if not places:
            return None
        start, end = min(start for start, _ in places), max(end for _, end in places)
        # A parameter has its brace where DuckDB read a space.
        return start, end + (self.text[end : end + 1] == "}" and self.parsed[end : end + 1] == " ")

    def error(self, node: Node | int | None, message: str, hint: str = "") -> StatementError:
        """An error about a part of the tree, or about a character."""
        offset = self.offset(node) if isinstance(node, Mapping) else node
        return StatementError(message, hint, offset=offset, text=self.text)

    def _places(self, node: Any) -> Iterator[tuple[int, int]]:
        if isinstance(node, Mapping):
            start, length = node.get("query_location", -1), node.get("query_location_length", 0)
            if 0 <= start < len(self._characters):  # what has no place has one beyond all texts
                yield self._characters[start], self._characters[min(start + length, len(self._characters) - 1)]
            for below in node.values():
                yield from self._places(below)
        elif isinstance(node, list):
            for below in node:
                yield from self._places(below)

    @functools.cached_property
    def _characters(self) -> list[int]:
        """Of each byte, and of the end, which character it belongs to: DuckDB counts bytes."""
        found = [place for place, sign in enumerate(self.parsed) for _ in sign.encode()]
        return [*found, len(self.parsed)]


def parse(text: str, params: Collection[str] = (), written: str | None = None) -> SelectStatement:
    """Read one SELECT statement.

    Args:
        text: of the statement.
        params: names of parameters, which it may name in braces.
        written: the statement as its errors quote places of it, where that is another text of the same length.

    Raises:
        StatementError: it is no single SELECT statement.

    >>> parse("SELECT count(*) FROM source").node["from_table"]["table_name"]
    'source'
    """
    written = text if written is None else written
    if not text.strip() or len(text) > LONGEST or "\0" in text or any("\ud800" <= sign <= "\udfff" for sign in text):
        hint = "write e.g. SELECT region, count(*) AS orders FROM source GROUP BY ALL"
        raise StatementError(f"must be a SELECT statement of at most {LONGEST} characters", hint, offset=None, text="")
    parsed = _PLACEHOLDER.sub(lambda found: f"${found[1]} " if found[1] in params else found[0], text)
    tree = tree_of(parsed)
    if tree.get("error"):
        raise _not_parsed(tree, parsed, written, params)
    listed = tree.get("statements", [])
    if len(listed) != 1:
        raise StatementError(ONE, "write one statement for each stage", offset=None, text=written)
    statement = SelectStatement(text=written, parsed=parsed, node=listed[0].get("node", {}))
    fields(statement, listed[0], {"node"}, {"named_param_map": None})
    for given in listed[0].get("named_param_map", []):
        name = given.get("key") if isinstance(given, Mapping) else given
        if name not in params:
            message, hint = f"names a parameter that params: does not declare: {name}", "declare it, or write a value"
            raise statement.error(None, message, hint)
    return statement


def _not_parsed(tree: Mapping[str, Any], parsed: str, written: str, params: Collection[str]) -> StatementError:
    position = str(tree.get("position", ""))
    offset = len(parsed.encode()[: int(position)].decode(errors="replace")) if position.isdigit() else None
    said = str(tree.get("error_message", "")).splitlines()[0]
    if "depth" in said:
        return StatementError(DEEP, "split it", offset=None, text=written)
    if "Only SELECT" in said:
        return StatementError(ONE, "nothing but SELECT is carried out", offset=None, text=written)
    around = [] if offset is None else [f for f in _PLACEHOLDER.finditer(parsed) if f.start() <= offset < f.end()]
    for found in around:
        offset = found.start()
        message = f"names a parameter that params: does not declare: {found[1]}"
        return StatementError(message, "declare it, or write a value", offset=offset, text=written)
    hint = "check the SQL; a column named like an SQL keyword needs double quotes"
    return StatementError(f"is not SQL: {said}", hint, offset=offset, text=written)


def fields(statement: SelectStatement, node: Node, known: Collection[str], defaults: Mapping[str, Any]) -> None:
    """Refuse a field of a node that nobody looks at.

    Args:
        statement: whose node it is.
        node: the node.
        known: the fields that its reader looks at.
        defaults: the only value of each other field that may be there; None stands for a field whose value says nothing.

    Raises:
        StatementError: another field is there, or has another value.
    """
    for name, value in node.items():
        if name in known or name in PLACES or is_blank(value):
            continue
        if name in defaults and (defaults[name] is None or value in defaults[name]):
            continue
        words, hint = FORMS.get(name, ("", ""))
        words = words or (
            name.upper().replace("_", " ") if name in defaults else unknown_field(node, {*known, *PLACES, *defaults})
        )
        raise statement.error(_first_place(value) or node, f"uses {words}, which is not supported", hint)


def _first_place(value: Any) -> Node | None:
    """Something with a place in what a field holds."""
    if isinstance(value, list):
        return next((found for below in value if (found := _first_place(below)) is not None), None)
    return value if isinstance(value, Mapping) and "query_location" in value else None


PLACES = frozenset({"class", "type", "alias", "query_location", "query_location_length"})
"""Fields that every node may have."""

FORMS: Mapping[str, tuple[str, str]] = {
    "cte_map": ("WITH", "write one SELECT over the rows; what WITH computes per row can stand in place of its name"),
    "sample": ("a sample of the rows", "drop it: noise is added to all rows' numbers"),
    "qualify": ("QUALIFY", "filter released numbers with HAVING"),
    "offset": ("OFFSET", "drop it: LIMIT gives the first rows"),
    "limit_type": ("LIMIT with a percentage", "write a number of rows"),
    "filter": ("FILTER", "filter rows with WHERE, or write CASE WHEN ... THEN ... END as the argument"),
    "order_bys": ("ORDER BY inside an aggregate", "drop it"),
    "distinct": ("DISTINCT in this aggregate", "only count can be DISTINCT"),
    "export_state": ("EXPORT_STATE", "drop it"),
    "at_clause": ("a version of a table", "name the files of that version"),
    "column_name_alias": ("names of columns behind the table", "name columns as they are, and rename them with AS"),
    "schema_name": ("a table with a schema", "name it with one word"),
    "catalog_name": ("a table with a catalog", "name it with one word"),
    "schema": ("a function with a schema", "write only the name of the function"),
    "catalog": ("a function with a catalog", "write only the name of the function"),
}
"""What a field is called in SQL, and what to write instead."""


def tree_of(sql: str) -> dict[str, Any]:
    """DuckDB's own tree of a statement; {"error": True, ..} where it does not parse."""
    ((found,),) = _connection().cursor().execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchall()
    tree: dict[str, Any] = json.loads(found)
    return tree


def text_of_tree(node: Node) -> str:
    """The SQL of an expression, as DuckDB writes it."""
    tree = tree_of("SELECT 1")
    tree["statements"][0]["node"]["select_list"] = [{**node, "alias": ""}]
    sql = "SELECT json_deserialize_sql(?::JSON)"
    ((found,),) = _connection().cursor().execute(sql, [json.dumps(tree)]).fetchall()
    return str(found).removeprefix("SELECT ")


@functools.cache
def function_names(*, aggregates: bool) -> frozenset[str]:
    """The names of all of DuckDB's functions, or of its aggregates alone."""
    listed = _connection().cursor().execute("SELECT function_name, function_type FROM duckdb_functions()").fetchall()
    return frozenset(name for name, form in listed if form == "aggregate" or not aggregates)


@functools.cache
def _connection() -> "duckdb.DuckDBPyConnection":
    import duckdb

    connection = duckdb.connect(":memory:", config={"threads": "1"})
    for setting in _SETTINGS:
        connection.execute(setting).fetchall()
    return connection
