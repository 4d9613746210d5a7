"""The name of the privacy unit for readers: a customer, not a value of customer_id.

In: the privacy unit as a manifest has it. Out: nouns. Holds: a unit that the job names keeps its name. Not covered: the exact
unit, which the page states once, where it says what is protected.
"""

import re

COLUMN = re.compile(r"value of (\S+)(.*)", re.DOTALL)
"""How a manifest calls a unit that is a column and has no name of its own."""

NUMBERED = re.compile(r"[_-](?:ids?|key|no|nr|num|number|uuid|guid|hash)\Z", re.IGNORECASE)
"""The end of the name of a column that numbers its units; the name without it is that of the units."""

CAMEL = re.compile(r"(?<=[a-z])I[dD]\Z")
"""The same in names such as userId."""

PREPOSITION = re.compile(r" (?:in|of|per|from|with) | \(")
"""What follows the noun in a name of several words."""

WHO = ("who", "whom")
"""Columns that are called so hold people."""

IRREGULAR = {"person": "people", "man": "men", "woman": "women", "child": "children"}
"""Plurals that no rule gives."""


def unit_name(unit: str) -> str:
    """Return what one privacy unit is called.

    Args:
        unit: the privacy unit of a manifest.

    >>> unit_name("value of customer_id"), unit_name("value of CUSTOMER_ID"), unit_name("value of userId")
    ('customer', 'customer', 'user')
    >>> unit_name("customer in one week"), unit_name("value of city"), unit_name("value of who"), unit_name("")
    ('customer in one week', 'city', 'person', 'privacy unit')
    """
    column = COLUMN.fullmatch(unit)
    return (_of_column(column[1]) + column[2]) if column is not None else unit or "privacy unit"


def plural(unit: str) -> str:
    """Return what several privacy units are called.

    >>> plural("value of customer_id"), plural("customer in one week"), plural("country"), plural("value of person_id")
    ('customers', 'customers in one week', 'countries', 'people')
    >>> plural("value of who"), plural("value of users"), plural("bus"), plural("class")
    ('people', 'users', 'buses', 'classes')
    """
    name = unit_name(unit)
    after = PREPOSITION.search(name)
    end = after.start() if after is not None else len(name)
    before, gap, noun = name[:end].rpartition(" ")
    return before + gap + _plural(noun) + name[end:]


def counted_in(sentence: str, units: str) -> str:
    """Return a sentence in which counted users or units have the name of the privacy unit.

    Args:
        sentence: of a plan, such as "within 10% from 2,845 users".
        units: what several privacy units are called.

    >>> counted_in("within 10% from 2,845 users (1,500 users of 10)", "customers")
    'within 10% from 2,845 customers (1,500 customers of 10)'
    """
    return re.sub(r"(?<=\d )(?:users|units)\b", lambda _: units, sentence)


def with_unit_name(sentence: str, unit: str) -> str:
    """Return a sentence of a manifest with the name of the unit in place of that of its column.

    >>> with_unit_name("at most 4 rows of one customer_id are counted in each group by city", "value of customer_id")
    'at most 4 rows of one customer are counted in each group by city'
    """
    column = COLUMN.fullmatch(unit)
    if column is None:
        return sentence
    return re.sub(
        rf"\b(one|each) {re.escape(column[1])}(?!\w)", lambda said: f"{said[1]} {_of_column(column[1])}", sentence
    )


def _of_column(column: str) -> str:
    name = column.lower() if column.isupper() else column
    if name.lower() in WHO:
        return "person"
    return NUMBERED.sub("", CAMEL.sub("", name)).replace("_", " ").strip() or column


def _plural(noun: str) -> str:
    if noun in IRREGULAR:
        return IRREGULAR[noun]
    if noun.endswith("s") and not noun.endswith(("ss", "us", "is")):  # the column has the plural for its name
        return noun
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"
