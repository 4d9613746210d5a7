"""Random one-place faults: every small change of some modules, and a seeded sample of them.

In: modules. Out: mutants, each with a name that its own syntax decides. Holds: the sample follows from the mutants' names and the
seed, so that code that moves to another file, or changes elsewhere, keeps its mutants. Words for people are left alone: messages,
docstrings, hints of types. Not covered: faults that need two changes at once.
"""

import ast
import copy
import hashlib
import itertools
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

SEED = "dp_pipelines"

ARITHMETIC = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
NAMES = {
    "min": "max",
    "max": "min",
    "minimum": "maximum",
    "maximum": "minimum",
    "floor": "ceil",
    "ceil": "floor",
    "any": "all",
    "all": "any",
    "log": "log1p",
    "log1p": "log",
    "exp": "expm1",
    "expm1": "exp",
    "left": "right",
    "zeros": "ones",
    "ones": "zeros",
}
"""Names of functions that are taken for each other."""

WORDS = ("RequestError", "LedgerError", "BudgetError", "ArithmeticError", "AssertionError", "TypeError", "ValueError")
"""Errors: what they say is words for people."""


class Mutant(NamedTuple):
    """One change of one module.

    Args:
        name: the qualified name of the function or constant, the statement as it was, and as it becomes.
        module: where it stands now.
        line: of the function, or of its first decorator; 0 outside of functions.
        number: which change of the module it is.
    """

    name: str
    module: str
    line: int
    number: int

    @property
    def rank(self) -> str:
        """Its place in the order in which mutants are taken."""
        return hashlib.sha256(f"{SEED}\0{self.name}".encode()).hexdigest()


def thorough_changes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the changed forms of one node that the sample leaves out.

    An element, a record or a factor is missing; a whole number is one less.
    """
    if isinstance(node, ast.Tuple | ast.List | ast.Set) and not isinstance(getattr(node, "ctx", None), ast.Store):
        for at in range(len(node.elts)):
            rest = [*node.elts[:at], *node.elts[at + 1 :]]
            if rest or not isinstance(node, ast.Set):
                yield type(node)(rest, ast.Load()) if not isinstance(node, ast.Set) else ast.Set(rest)
    elif (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div | ast.BitOr)
        and not _text(node)
    ):
        yield from (node.left, node.right)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        yield ast.Constant(node.value - 1)
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("min", "max", "sum", "sorted", "set")
    ):
        if len(node.args) > 1 and not node.keywords:
            yield from node.args
    elif isinstance(node, ast.comprehension) and node.ifs:
        yield ast.comprehension(node.target, node.iter, [], node.is_async)


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """The changed forms of one node."""
    if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC and not _text(node):
        yield ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right)
    elif isinstance(node, ast.AugAssign) and type(node.op) in ARITHMETIC:
        yield ast.AugAssign(node.target, ARITHMETIC[type(node.op)](), node.value)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not | ast.Invert):
        yield node.operand
    elif isinstance(node, ast.Compare):
        for at, operator in enumerate(node.ops):
            other = [*node.ops[:at], COMPARISONS[type(operator)](), *node.ops[at + 1 :]]
            yield ast.Compare(node.left, other, node.comparators)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield ast.Constant(node.value + 1)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in NAMES:
        yield ast.Call(ast.Name(NAMES[node.func.id], ast.Load()), node.args, node.keywords)
    elif isinstance(node, ast.Attribute) and node.attr in NAMES:
        yield ast.Attribute(node.value, NAMES[node.attr], node.ctx)
    elif isinstance(node, ast.If):
        yield ast.If(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
    elif isinstance(node, ast.IfExp):
        yield ast.IfExp(node.test, node.orelse, node.body)
    elif _can_go(node):
        yield ast.Pass()


def _text(node: ast.BinOp) -> bool:
    """Whether this puts texts together."""
    return any(
        isinstance(part, ast.JoinedStr) or (isinstance(part, ast.Constant) and isinstance(part.value, str))
        for part in (node.left, node.right)
    )


def _can_go(node: ast.AST) -> bool:
    """Whether a statement can be left out without a name being unknown."""
    if isinstance(node, ast.Assign | ast.AugAssign):
        return _again(node)
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)


def _again(node: ast.Assign | ast.AugAssign) -> bool:
    """Whether an assignment changes part of something: leaving it out leaves names that are known."""
    target = node.target if isinstance(node, ast.AugAssign) else node.targets[0]
    return isinstance(target, ast.Subscript)


def mutants(module: str, text: str, *, thorough: bool = False) -> list[Mutant]:
    """All mutants of a module; two of one name are told apart by a number.

    Args:
        module, text: of the module.
        thorough: with those that the sample leaves out, behind the others of each place.
    """
    tree, seen, found = ast.parse(text), Counter[str](), list[Mutant]()
    for number, (name, line, before, after) in enumerate(_changed(tree, thorough)):
        whole = f"{name}: {before} -> {after}"
        seen[whole] += 1
        found.append(Mutant(whole if seen[whole] == 1 else f"{whole} ({seen[whole]})", module, line, number))
    return found


def planted(text: str, mutant: Mutant, *, thorough: bool = False) -> str:
    """The text of the mutant's module with its change; `thorough` as for `mutants`."""
    tree = ast.parse(text)
    next(itertools.islice(_changed(tree, thorough), mutant.number, None))  # and the tree stays as it is meanwhile
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def sample(everything: list[Mutant], number: int) -> list[Mutant]:
    """The first mutants by their ranks."""
    return sorted(everything, key=lambda mutant: mutant.rank)[:number]


def _changed(tree: ast.Module, thorough: bool) -> Iterator[tuple[str, int, str, str]]:
    """Change the tree in one place after the other; gives the place's name and line, and its statement before and after."""
    for name, line, statement, node, owner, field, at in _nodes(tree):
        before = ast.unparse(_head(statement))
        for other in (*changes(node), *(thorough_changes(node) if thorough else ())):
            _put(owner, field, at, other)
            yield name, line, before, ast.unparse(_head(statement if node is not statement else other))
            _put(owner, field, at, node)


def _put(owner: ast.AST, field: str, at: int | None, node: ast.AST) -> None:
    if at is None:
        setattr(owner, field, node)
    else:
        getattr(owner, field)[at] = node


def _head(statement: ast.AST) -> ast.AST:
    """A statement without what stands inside of it: the line that a reader knows it by."""
    if not getattr(statement, "body", None) or not isinstance(statement, ast.stmt):
        return statement
    short = copy.copy(statement)
    short.body = [ast.Expr(ast.Constant(...))]
    for part in ("orelse", "finalbody", "handlers"):
        if getattr(short, part, None):
            setattr(short, part, [])
    return short


Found = tuple[str, int, ast.AST, ast.AST, ast.AST, str, int | None]


def _nodes(tree: ast.Module) -> Iterator[Found]:
    """What may change: qualified name, line of the function, statement, node, owner, field, index."""

    def walk(owner: ast.AST, name: str, line: int, statement: ast.AST) -> Iterator[Found]:
        for field, value in ast.iter_fields(owner):
            if field in ("annotation", "returns", "decorator_list", "type_params", "op", "ops", "ctx"):
                continue
            for at, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if not isinstance(child, ast.AST) or _is_words(child):
                    continue
                inner, where, here = (child if isinstance(child, ast.stmt) else statement), name, line
                if isinstance(child, ast.FunctionDef | ast.ClassDef):
                    where = f"{name}.{child.name}" if name else child.name
                    if isinstance(child, ast.FunctionDef):
                        here = min([child.lineno, *(d.lineno for d in child.decorator_list)])
                elif not name and isinstance(child, ast.Assign | ast.AnnAssign):
                    where = ast.unparse(child.targets[0] if isinstance(child, ast.Assign) else child.target)
                yield where, here, inner, child, owner, field, at
                yield from walk(child, where, here, inner)

    yield from walk(tree, "", 0, tree)


def _is_words(node: ast.AST) -> bool:
    """Whether this is for people, for types or for other modules."""
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Assert | ast.JoinedStr):
        return True
    if isinstance(node, ast.Raise):
        return True
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in WORDS:
        return True
    if isinstance(node, ast.Assign | ast.AnnAssign):
        value = node.value
        return value is None or (isinstance(value, ast.Subscript) and "Literal" in ast.unparse(value))
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("dataclasses.dataclass", "functools.lru_cache")
