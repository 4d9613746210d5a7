"""BigQuery's clause: SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 1, privacy_unit_column = id, ...).

In: a statement. Out: the same without the clause, every other character in its place; what the options say, as a job file would.
Holds: an option whose meaning is another here is refused in words. Not covered: arguments of aggregates, such as
`contribution_bounds_per_group` (`aggregate_calls`); docs/sql.md lists what differs.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

from dp_pipelines.extensions.sql_select import constants, syntax
from dp_pipelines.extensions.sql_select.syntax import Node, SelectStatement, StatementError

Said = tuple[tuple[str | int, ...], Any, int | None]
"""A path in a job, or after "stage" in its stage; what stands there; the character that says it."""

CLAUSE = "DIFFERENTIAL_PRIVACY"

PUBLIC_GROUPS = ("stage", "partitions", "public_groups")
"""Where it is said that the groups are public."""

_TOKEN = re.compile(
    r"(?P<skip>\s+|--[^\n]*|/\*.*?\*/)|(?P<text>'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`)|(?P<word>\w+)|(?P<sign>.)",
    re.DOTALL,
)

_AGREED = {
    "epsilon": ("budget", "epsilon"),
    "delta": ("budget", "delta"),
    "max_groups_contributed": ("stage", "bounds", "max_partitions_contributed"),
    "min_privacy_units_per_group": ("stage", "partitions", "private", "min_users"),
}
_STRATEGIES: Mapping[str, tuple[tuple[str, ...], Any]] = {
    "LAPLACE_THRESHOLD": (("stage", "partitions", "private", "strategy"), "laplace"),
    "PUBLIC_GROUPS": (PUBLIC_GROUPS, True),
}
OPTIONS = (*_AGREED, "privacy_unit_column", "group_selection_strategy")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clause:
    """The clause of a statement.

    Args:
        options: the part of the tree that each option is, and what it is set to.
    """

    options: Mapping[str, Node]

    def said(self, statement: SelectStatement) -> Iterator[Said]:
        """What the options say.

        Args:
            statement: the statement, for errors.

        Raises:
            StatementError: an option is not known, or means something else.
        """
        for name, node in self.options.items():
            offset = statement.offset(node)
            if name in ("epsilon", "delta"):
                yield _AGREED[name], constants.number(statement, node, name), offset
            elif name in _AGREED:
                if not str(node.get("literal", {}).get("text", "")).isdigit():  # NULL among them: no limit at all
                    hint = "write how many at most: without a limit one person could be in every group"
                    raise statement.error(node, f"must be a whole number: {name}", hint)
                yield _AGREED[name], constants.whole(statement, node, name), offset
            else:
                yield self._named(statement, name, node, offset)

    @staticmethod
    def _named(statement: SelectStatement, name: str, node: Node, offset: int | None) -> Said:
        names = node.get("column_names", [])
        word = str(names[0]) if len(names) == 1 else ""
        if not word:
            raise statement.error(node, f"must be one name: {name}")
        if name == "privacy_unit_column":
            return ("privacy_unit",), [word], offset
        if word.upper() not in _STRATEGIES:
            raise statement.error(
                node, f"is no strategy that is known here: {word}", "known: " + ", ".join(_STRATEGIES)
            )
        path, value = _STRATEGIES[word.upper()]
        return path, value, offset


def said_in(text: str) -> Mapping[tuple[str | int, ...], Any]:
    """What the options of a statement say, by path as in `Said`; nothing where it has no such clause.

    Args:
        text: the statement.

    Raises:
        StatementError: the clause cannot be read.

    >>> said_in("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1) count(*) FROM t")
    {('budget', 'epsilon'): 1}
    """
    plain, clause = without_clause(text)
    if clause is None:
        return {}
    statement = syntax.parse(plain, (), text)
    return {path: value for path, value, _ in clause.said(statement)}


def without_clause(text: str) -> tuple[str, Clause | None]:
    """The statement without the clause, as long as it was, and the clause.

    Args:
        text: the statement.

    Raises:
        StatementError: the clause cannot be read.

    >>> plain, clause = without_clause("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1) count(*) FROM t")
    >>> plain.split(), list(clause.options)
    (['SELECT', 'count(*)', 'FROM', 't'], ['epsilon'])
    """
    tokens = [found for found in _TOKEN.finditer(text) if found["skip"] is None]
    words = [found[0].upper() for found in tokens[:4]]
    if words[:2] != ["SELECT", "WITH"]:
        return text, None
    if words[2:3] != [CLAUSE]:
        hint = f"write SELECT WITH {CLAUSE} OPTIONS(...), or SELECT alone"
        raise StatementError(
            f"has a clause that is not known here: {' '.join(words[1:3])}", hint, offset=tokens[1].start(), text=text
        )
    if words[3:] != ["OPTIONS"]:
        return _blank(text, tokens[1].start(), tokens[2].end()), Clause(options={})
    start, end = _brackets(text, tokens)
    return _blank(text, tokens[1].start(), end), Clause(options=_options(text, start, end))


def _blank(text: str, start: int, end: int) -> str:
    """The text with spaces in place of some of it; ends of lines stay."""
    return text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]


def _brackets(text: str, tokens: list[re.Match[str]]) -> tuple[int, int]:
    """Where the brackets behind OPTIONS open and close."""
    depth, start = 0, -1
    for found in tokens[4:]:
        if found["sign"] == "(":
            start = found.start() if depth == 0 else start
            depth += 1
        elif found["sign"] == ")":
            depth -= 1
        if depth == 0:
            if start >= 0:
                return start, found.end()
            break
    message, hint = (
        "needs its options in brackets",
        "write OPTIONS(epsilon = 1, delta = 1e-6, privacy_unit_column = id)",
    )
    raise StatementError(message, hint, offset=tokens[3].start(), text=text)


def _options(text: str, start: int, end: int) -> Mapping[str, Node]:
    """Each option with the part of the tree that it is set to."""
    head = "SELECT f"
    before = _blank(text, 0, len(text))[: start - len(head)]
    statement = syntax.parse(before + head + text[start:end], written=text)
    found: dict[str, Node] = {}
    for given in statement.node["select_list"][0]["arguments"]:
        node = given["expression"]
        names = node.get("left", {}).get("column_names", [])
        if given.get("name") or node.get("type") != "COMPARE_EQUAL" or len(names) != 1:
            raise statement.error(node, "is no option", "write e.g. epsilon = 1")
        name = str(names[0]).lower()
        if name not in OPTIONS:
            raise statement.error(node, f"is an option that is not known here: {name}", "known: " + ", ".join(OPTIONS))
        if name in found:
            raise statement.error(node, f"is said twice: {name}", "write it once")
        found[name] = node["right"]
    return found
