"""ROLLUP and GROUPING SETS as the levels of a rollup, where each set is a part of the next.

In: the sets of GROUP BY, as the names of selected keys. Out: levels from coarse to fine; none of one set. Holds: sets that are no
chain are refused where the first entry stands that breaks it. Not covered: which key an entry of GROUP BY names
(`from_statement`), and what may stand beside levels (`query.rollup_rules`).
"""

import itertools
from collections.abc import Sequence

from dp_pipelines.extensions.sql_select.syntax import Node, SelectStatement

HINT = "write GROUP BY ROLLUP (a, b), or sets of which each is a part of the next, such as ((), (a), (a, b))"
CHOICE = "write GROUP BY ALL, and rollup: beside the statement in a job file: it then chooses among the finest groups"


def levels(
    statement: SelectStatement, groups: Sequence[Node], names: Sequence[str], keys: Sequence[str], *, clause: bool
) -> list[list[str]]:
    """The levels that the sets of GROUP BY are; empty where there is one set.

    Args:
        statement: which groups.
        groups: the entries of GROUP BY.
        names: of each entry the key that it names.
        keys: all selected keys, in their order, which a level keeps.
        clause: whether BigQuery's clause for differential privacy stands in it.

    Raises:
        StatementError: the sets are no chain, or something stands beside them that would mean something else.
    """
    sets: list[list[int]] = sorted(statement.node["group_sets"], key=len)
    if len(sets) < 2 and sets in ([], [list(range(len(groups)))]):
        return []
    named = [{names[entry] for entry in each} for each in sets]
    for (coarse, fine), entries in zip(itertools.pairwise(named), sets, strict=False):
        if not coarse < fine:
            new = next((entry for entry in entries if names[entry] not in fine), None)
            # The same set twice has no entry of its own.
            at = (
                groups[new] if new is not None else groups[entries[-1]] if entries else statement.node["select_list"][0]
            )
            raise statement.error(at, "is no chain of groups: ROLLUP, CUBE or GROUPING SETS", HINT)
    if clause:
        message = "groups by several sets beside WITH DIFFERENTIAL_PRIVACY, whose limits say nothing of them"
        raise statement.error(
            groups[0], message, "leave the clause out, and write budget and bounds beside the statement"
        )
    for word, node in _choices(statement):
        message = f"stands beside levels, of which SQL would choose rows too: {word}"
        raise statement.error(node, message, CHOICE)
    return [[key for key in keys if key in each] for each in named]


def _choices(statement: SelectStatement) -> list[tuple[str, Node]]:
    """What chooses among rows of all levels in SQL."""
    found = [("LIMIT", each["limit"]) for each in statement.node["modifiers"] if each["type"] == "LIMIT_MODIFIER"]
    having = statement.node["having"]
    return [*([("HAVING", having)] if having is not None else []), *found]
