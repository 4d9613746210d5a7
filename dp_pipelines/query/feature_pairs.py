"""Pairs of features: their crossed cells are columns of the model too.

In: names of declared features, two by two. Out: the same as plain tuples; how many columns each pair has. Holds: it follows from
what is declared; every row has exactly one of a pair's columns, whatever it holds. Not covered: which cell a row is in
(`training.features.encoder`).
"""

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from dp_pipelines.errors import RequestError, nearest

Pair = tuple[str, str]
"""The names of two features."""


class Crossed(Protocol):
    """A feature that can be crossed with another one."""

    @property
    def cells(self) -> int:
        """Return the number of values that are distinguished."""
        ...

    @property
    def hot(self) -> int:
        """Return the number of columns of which every row has exactly one."""
        ...


def checked(pairs: Any, features: Mapping[str, Crossed]) -> tuple[Pair, ...]:
    """Check a list of pairs and return it as tuples.

    Args:
        pairs: as they are declared.
        features: by name.

    Raises:
        RequestError: it is not a list of pairs of two different declared features, or a pair occurs twice.
    """
    if not isinstance(pairs, (list, tuple)):
        hint = "write e.g. pairs: [[age, income]]"
        raise RequestError(field="pairs", message="must be a list of pairs of features", hint=hint)
    by_members: dict[frozenset[str], Pair] = {}
    for place, pair in enumerate(pairs):
        field = f"pairs.{place}"
        if not isinstance(pair, (list, tuple)) or len(pair) != 2 or not all(isinstance(name, str) for name in pair):
            raise RequestError(field=field, message="must be two names of features", hint="write e.g. [age, income]")
        first, second = pair
        for name in pair:
            if name not in features:
                message = f"names {name!r}, which is no feature"
                raise RequestError(field=field, message=message, hint=nearest(name, features))
            if features[name].cells < 2:
                message = f"names {name!r}, whose single bin says only whether there is a value"
                raise RequestError(field=field, message=message, hint="give it bins, or leave the pair out")
        if first == second:
            raise RequestError(field=field, message=f"names {first!r} twice", hint="name two features")
        if frozenset(pair) in by_members:
            message = f"is a pair that stands there already: {first!r} and {second!r}"
            raise RequestError(field=field, message=message, hint="drop one of them: their order says nothing")
        by_members[frozenset(pair)] = (first, second)
    return tuple(by_members.values())


def in_order(pairs: Iterable[Sequence[str]]) -> list[Pair]:
    """Return pairs in the order in which plans and digests of jobs list them. The order has no meaning, nor has that in a pair.

    >>> in_order([("weight", "product"), ("store", "product")])
    [('product', 'store'), ('product', 'weight')]
    """
    return sorted((min(pair), max(pair)) for pair in pairs)


def columns(pairs: Sequence[Pair], features: Mapping[str, Crossed]) -> tuple[int, ...]:
    """Return the number of columns of each pair: the `hot` columns of its features, multiplied.

    Args:
        pairs: of names of features.
        features: by name.

    >>> from dp_pipelines.query.train_model import Category, Number
    >>> age, income = Category(column="age", categories=["A", "B"]), Number(column="income", min_value=0, max_value=9)
    >>> columns([("age", "income")], {"age": age, "income": income})
    (33,)
    """
    return tuple(operator.mul(*(features[name].hot for name in pair)) for pair in pairs)
