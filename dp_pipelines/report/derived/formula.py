"""Formulas over released numbers: names, their totals, numbers, + - * / and brackets, and nothing else.

In: a text such as `revenue / orders`. Out: a `Formula`, which computes it over columns of numbers. Holds: a text is read by this
grammar alone, never evaluated as code; its length, depth and number of names are bounded, so no text can cost much. Not covered:
whether the names are released, and noise (`intervals`).
"""

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping

import numpy as np

from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.lattice import Flags, Floats

MOST_CHARACTERS = 500
"""Of a formula."""

MOST_DEPTH = 20
"""Brackets and signs inside each other."""

MOST_NAMES = 8
"""Different numbers of a formula. Each needs 10,000 draws for each row."""

EXAMPLE = 'write e.g. "revenue / orders"'

TOTAL = "total"
"""Before a name in brackets: the sum of its numbers over all rows of the table."""

_OF_TOTAL = "\0"
"""Before the name of a total in `Formula.names`; no metric is called so."""

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)(?![\w.])|(?P<name>[^\W\d]\w*)|"(?P<quoted>(?:[^"]|"")+)"|(?P<sign>[-+*/()]))"""
)

_PLAIN_NAME = re.compile(r"[^\W\d]\w*\Z")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Computed:
    """A formula computed over columns.

    Args:
        values: one number for each row, or for each row and draw.
        divisors: the values of all factors of what was divided by, of the same shape.
    """

    values: Floats
    divisors: tuple[Floats, ...] = ()


class Node:
    """A part of a formula."""

    def compute(self, columns: Mapping[str, Floats]) -> Computed:
        """Return its values over columns of equal shape. Nothing is raised; a division by zero gives no finite number."""
        raise NotImplementedError

    def names(self) -> Iterator[str]:
        """Yield the names in it, from left to right."""
        raise NotImplementedError

    def factors(self) -> "Iterator[Node]":
        """Yield what it is a product of. It is zero where one of them is; a square would hide that its sign is unknown."""
        yield self

    def linear(self) -> "WeightedSum | None":
        """Return it as a sum of names times constants; None where it is something else."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class WeightedSum:
    """A constant and a sum of names, each times a number.

    Args:
        constant: the constant.
        factors: by name.
    """

    constant: float
    factors: Mapping[str, float]

    def times(self, factor: float) -> "WeightedSum":
        """Return it times a number."""
        return WeightedSum(self.constant * factor, {name: each * factor for name, each in self.factors.items()})

    def plus(self, other: "WeightedSum") -> "WeightedSum":
        """Return the sum of two."""
        names = dict.fromkeys([*self.factors, *other.factors])
        factors = {name: self.factors.get(name, 0.0) + other.factors.get(name, 0.0) for name in names}
        return WeightedSum(self.constant + other.constant, factors)

    def compute(self, columns: Mapping[str, Floats]) -> Floats:
        """Return its values over columns; at least one."""
        start = np.full_like(next(iter(columns.values())), self.constant)
        return sum((factor * columns[name] for name, factor in self.factors.items()), start)


@dataclasses.dataclass(frozen=True)
class Constant(Node):
    """A number of the text."""

    value: float

    def compute(self, columns: Mapping[str, Floats]) -> Computed:
        """See `Node`."""
        return Computed(values=np.full_like(next(iter(columns.values())), self.value))

    def names(self) -> Iterator[str]:
        """See `Node`."""
        return iter(())

    def linear(self) -> WeightedSum:
        """See `Node`."""
        return WeightedSum(self.value, {})


@dataclasses.dataclass(frozen=True)
class Name(Node):
    """A released number."""

    name: str

    def compute(self, columns: Mapping[str, Floats]) -> Computed:
        """See `Node`."""
        return Computed(values=columns[self.name])

    def names(self) -> Iterator[str]:
        """See `Node`."""
        yield self.name

    def linear(self) -> WeightedSum:
        """See `Node`."""
        return WeightedSum(0.0, {self.name: 1.0})


def total_of(name: str) -> str:
    """Return what the total of a metric is called among the names of a formula."""
    return _OF_TOTAL + name


def plain(name: str) -> str:
    """Return the metric of a name of a formula, which may be that of its total.

    >>> plain(total_of("orders")), plain("orders")
    ('orders', 'orders')
    """
    return name.removeprefix(_OF_TOTAL)


@dataclasses.dataclass(frozen=True)
class Operation(Node):
    """Two parts and the sign between them: one of + - * /."""

    sign: str
    left: Node
    right: Node

    def compute(self, columns: Mapping[str, Floats]) -> Computed:
        """See `Node`."""
        left, right = self.left.compute(columns), self.right.compute(columns)
        divisors = left.divisors + right.divisors
        with np.errstate(all="ignore"):
            match self.sign:
                case "+":
                    values = left.values + right.values
                case "-":
                    values = left.values - right.values
                case "*":
                    values = left.values * right.values
                case _:
                    values = left.values / right.values
                    divisors += tuple(factor.compute(columns).values for factor in self.right.factors())
        return Computed(values=values, divisors=divisors)

    def names(self) -> Iterator[str]:
        """See `Node`."""
        yield from self.left.names()
        yield from self.right.names()

    def factors(self) -> Iterator[Node]:
        """See `Node`."""
        match self.sign:
            case "*":
                yield from self.left.factors()
                yield from self.right.factors()
            case "/":  # what it is divided by is a divisor anyway
                yield from self.left.factors()
            case _:
                yield self

    def linear(self) -> WeightedSum | None:
        """See `Node`."""
        left, right = self.left.linear(), self.right.linear()
        if left is None or right is None:
            return None
        match self.sign:
            case "+":
                return left.plus(right)
            case "-":
                return left.plus(right.times(-1.0))
            case "*":
                if left.factors and right.factors:
                    return None
                return left.times(right.constant) if left.factors else right.times(left.constant)
            case _:
                return None if right.factors or not right.constant else left.times(1 / right.constant)


@dataclasses.dataclass(frozen=True)
class Formula:
    """A formula that was read.

    Args:
        text: as it was written.
        root: what it says.

    >>> formula = read("100 * (revenue - cost) / revenue")
    >>> formula.names
    ('revenue', 'cost')
    >>> formula.compute({"revenue": np.array([8.0]), "cost": np.array([6.0])}).values.tolist()
    [25.0]
    """

    text: str
    root: Node

    @property
    def names(self) -> tuple[str, ...]:
        """The released numbers that it needs, each once: of a row, and totals by `total_of`."""
        return tuple(dict.fromkeys(self.root.names()))

    @property
    def totals(self) -> tuple[str, ...]:
        """The metrics whose totals it needs.

        >>> read("100 * orders / total(orders)").totals
        ('orders',)
        """
        return tuple(plain(name) for name in self.names if name.startswith(_OF_TOTAL))

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that it needs, of a row or as a total, each once."""
        return tuple(dict.fromkeys(plain(name) for name in self.names))

    def compute(self, columns: Mapping[str, Floats]) -> Computed:
        """Return its values.

        Args:
            columns: the numbers of each name, all of one shape.
        """
        return self.root.compute(columns)

    def quotient(self) -> tuple[WeightedSum, WeightedSum] | None:
        """Return numerator and denominator, where both are sums of names times numbers; None where they are not.

        >>> [part.factors for part in read("100 * a / (b - c)").quotient()]
        [{'a': 100.0}, {'b': 1.0, 'c': -1.0}]
        >>> read("a * b").quotient() is None, read("a - b").quotient()[1].constant
        (True, 1.0)
        >>> [part.factors for part in read("1 - a / b").quotient()]
        [{'b': 1.0, 'a': -1.0}, {'b': 1.0}]
        """
        return _fraction(self.root)


def _fraction(node: Node) -> tuple[WeightedSum, WeightedSum] | None:
    """Return numerator and denominator of a part, where both are sums of names times numbers; None where they are not."""
    if (whole := node.linear()) is not None:
        return whole, WeightedSum(1.0, {})
    if not isinstance(node, Operation):
        return None
    left, right = _fraction(node.left), _fraction(node.right)
    if left is None or right is None:
        return None
    (above, below), (other_above, other_below) = left, right
    match node.sign:
        case "*":
            return _both(_product(above, other_above), _product(below, other_below))
        case "/":
            return _both(_product(above, other_below), _product(below, other_above))
        case _:
            other_above = other_above.times(-1.0 if node.sign == "-" else 1.0)
            if below == other_below:
                return above.plus(other_above), below
            first, second = _product(above, other_below), _product(other_above, below)
            return None if first is None or second is None else _both(first.plus(second), _product(below, other_below))


def _product(left: WeightedSum, right: WeightedSum) -> WeightedSum | None:
    """Return the product of two sums, one of which is a number; None where neither is."""
    if left.factors and right.factors:
        return None
    return left.times(right.constant) if left.factors else right.times(left.constant)


def _both(above: WeightedSum | None, below: WeightedSum | None) -> tuple[WeightedSum, WeightedSum] | None:
    return None if above is None or below is None else (above, below)


def undivided(result: Computed) -> Flags:
    """Return where nothing was divided by zero and all numbers are finite.

    Args:
        result: of a formula.
    """
    found = np.isfinite(result.values)
    for divisor in result.divisors:
        found &= np.isfinite(divisor) & (divisor != 0)
    return found


def quoted(name: str) -> str:
    """Return a name as formulas write it.

    >>> quoted("revenue"), quoted("net revenue")
    ('revenue', '"net revenue"')
    """
    return name if _PLAIN_NAME.match(name) else '"' + name.replace('"', '""') + '"'


def read(text: str) -> Formula:
    r"""Read a formula.

    Args:
        text: names of released numbers (in double quotes where they are no single word), numbers, + - * / and brackets.

    Raises:
        RequestError: it is something else, too long or too deep; without a field.

    >>> read("a ** 2")
    Traceback (most recent call last):
    dp_pipelines.errors.RequestError: : has '*' where a metric or a number is expected; write e.g. "revenue / orders"
    >>> read("revenue orders")
    Traceback (most recent call last):
    dp_pipelines.errors.RequestError: : has no sign before 'orders'; write one of + - * / between two numbers
    """
    if len(text) > MOST_CHARACTERS:
        message = f"is a formula of more than {MOST_CHARACTERS} characters"
        raise RequestError(field="", message=message, hint="split it into several")
    reader = _Reader(list(_tokens(text)))
    root = reader.sum(0)
    reader.refuse_more()
    formula = Formula(text, root)
    named = [plain(name) for name in root.names()]  # a total holds the noise of its group
    twice = next((name for name in named if named.count(name) > 1), None)
    # Where such a formula turns, as `a * a` does at 0, all draws lie to one side of the truth: no interval of draws holds it.
    if twice is not None and formula.quotient() is None:
        message = f"uses {twice!r} twice, and is no sum of metrics divided by a sum of metrics"
        hint = "no interval of its noise is known: publish the parts, and compute it from them"
        raise RequestError(field="", message=message, hint=hint)
    if not formula.names:
        raise RequestError(field="", message="names no metric", hint=EXAMPLE)
    if len(formula.names) > MOST_NAMES:
        message = f"names more than {MOST_NAMES} metrics"
        raise RequestError(field="", message=message, hint="split it into several")
    return formula


def _tokens(text: str) -> Iterator[Node | str]:
    """Yield numbers and names as nodes, and signs as text."""
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            sign = text[at:].lstrip()[0]
            hint = "write names of metrics, numbers, + - * / and brackets"
            raise RequestError(field="", message=f"has a sign that formulas do not know: {sign!r}", hint=hint)
        at = match.end()
        if match["number"] is not None:
            if not math.isfinite(value := float(match["number"])):
                raise RequestError(field="", message="has a number that is too large", hint="write it smaller")
            yield Constant(value)
        elif match["sign"] is not None:
            yield match["sign"]
        else:
            yield Name(match["name"] or match["quoted"].replace('""', '"'))


class _Reader:
    """Reads tokens from left to right: products bind more than sums, and equal signs from the left."""

    def __init__(self, tokens: list[Node | str]) -> None:
        self.tokens, self.at = tokens, 0

    @property
    def next(self) -> Node | str | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def take(self) -> Node | str | None:
        token = self.next
        self.at += 1
        return token

    def sum(self, depth: int) -> Node:
        node = self.product(depth)
        while self.next in ("+", "-"):
            sign = str(self.take())
            node = Operation(sign, node, self.product(depth))
        return node

    def product(self, depth: int) -> Node:
        node = self.number(depth)
        while self.next in ("*", "/"):
            sign = str(self.take())
            right = self.number(depth)
            below = right.linear() if sign == "/" else None
            if below is not None and not any(below.factors.values()) and not below.constant:
                raise RequestError(field="", message="divides by zero", hint="divide by a metric or another number")
            node = Operation(sign, node, right)
        return node

    def number(self, depth: int) -> Node:
        if depth > MOST_DEPTH:
            message = f"has more than {MOST_DEPTH} brackets or signs inside each other"
            raise RequestError(field="", message=message, hint="split it into several")
        taken = self.take()
        if taken == Name(TOTAL) and self.next == "(":
            return self.total()
        if isinstance(taken, Node):
            return taken
        if taken == "-":
            return Operation("*", Constant(-1.0), self.number(depth + 1))
        if taken == "(":
            node = self.sum(depth + 1)
            if self.take() != ")":
                raise RequestError(field="", message="has a bracket that is not closed", hint="add )")
            return node
        where = "ends" if taken is None else f"has {taken!r}"
        raise RequestError(field="", message=f"{where} where a metric or a number is expected", hint=EXAMPLE)

    def total(self) -> Node:
        self.take()
        name = self.take()
        if not isinstance(name, Name) or self.take() != ")":
            raise RequestError(
                field="", message=f"has a {TOTAL}(...) of no metric", hint="write e.g. orders / total(orders)"
            )
        return Name(total_of(name.name))

    def refuse_more(self) -> None:
        token = self.next
        if token is None:
            return
        if isinstance(token, Node):
            shown = token.name if isinstance(token, Name) else f"{token.value:g}" if isinstance(token, Constant) else ""
            hint = "write one of + - * / between two numbers"
            raise RequestError(field="", message=f"has no sign before {shown!r}", hint=hint)
        raise RequestError(field="", message=f"has {token!r} where nothing opens it", hint="drop it, or open a bracket")
