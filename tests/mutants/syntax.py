"""Places in our source, found by qualified name and by syntax, and the source with one of them changed.

In: the modules of a tree; the qualified name of a function, a class or a module's constant; a piece of syntax. Out: the one place
that matches, and the module's text with another piece there. Holds: layout, comments, lines and the files' own names decide
nothing, so that code may move; what matches no place or several is an error and never a silent miss. Not covered: code that is
not Python.
"""

import ast
import copy
from collections.abc import Iterator, Mapping
from pathlib import Path

Node = ast.expr | list[ast.stmt]
"""A piece of syntax: one expression, or statements that follow each other."""


class NoPlace(LookupError):
    """A fault of the table stands nowhere in the tree, or in several places."""


def parsed(text: str) -> Node:
    """A piece of syntax: an expression where it is one, else statements.

    >>> type(parsed("a < b")).__name__, len(parsed("a = 1; b = 2"))
    ('Compare', 2)
    """
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        return ast.parse(text).body


def same(node: ast.AST) -> str:
    """A text that two pieces of syntax share only if they mean the same, whether they are read or written to."""
    return ast.dump(node).replace("ctx=Store()", "ctx=Load()")


def scopes(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Functions, classes and assigned names of a module, with their qualified names; functions in functions too."""
    yield "", tree

    def inside(body: list[ast.stmt], before: str) -> Iterator[tuple[str, ast.AST]]:
        for statement in body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield before + statement.name, statement
                yield from inside(statement.body, f"{before}{statement.name}.")
            elif isinstance(statement, ast.Assign | ast.AnnAssign):
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                names = [name for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
                yield from ((before + name.id, statement) for name in names)
            else:
                for part in ("body", "orelse", "finalbody"):
                    yield from inside(getattr(statement, part, None) or [], before)

    yield from inside(tree.body, "")


def matches(scope: ast.AST, wanted: Node) -> list[tuple[ast.AST, str, int | None]]:
    """Where a piece stands inside a scope: owner, field and index; the index is None where the field holds one node."""
    found: list[tuple[ast.AST, str, int | None]] = []
    pieces = wanted if isinstance(wanted, list) else [wanted]
    size, kinds, texts = len(pieces), [type(piece) for piece in pieces], [same(piece) for piece in pieces]
    for owner in ast.walk(scope):
        for field, value in ast.iter_fields(owner):
            if isinstance(value, list):
                for at in range(len(value) - size + 1):
                    part = value[at : at + size]
                    if [type(p) for p in part] == kinds and [same(p) for p in part] == texts:
                        found.append((owner, field, at))
            elif kinds == [type(value)] and not isinstance(wanted, list) and same(value) == texts[0]:
                found.append((owner, field, None))
    return found


def replaced(tree: ast.Module, place: tuple[ast.AST, str, int | None], before: Node, after: Node) -> None:
    """Put another piece into a place, in the tree itself."""
    owner, field, at = place
    if isinstance(before, list):
        assert isinstance(after, list)
        at = at or 0
        getattr(owner, field)[at : at + len(before)] = after or [ast.Pass()]
    else:
        assert isinstance(after, ast.expr)
        if at is None:
            setattr(owner, field, after)
        else:
            getattr(owner, field)[at] = after
    ast.fix_missing_locations(tree)


class Trees:
    """The modules of a tree, parsed once, and their scopes by name.

    Args:
        files: the modules, by name.
    """

    def __init__(self, files: Mapping[str, Path]) -> None:
        self.files = files
        self._trees = {name: ast.parse(path.read_text()) for name, path in files.items()}
        self._scopes: dict[str, list[tuple[str, ast.AST]]] = {}
        for module, tree in self._trees.items():
            for name, scope in scopes(tree):
                self._scopes.setdefault(name, []).append((module, scope))

    def place(self, where: str, hint: str, before: str) -> str:
        """The module in which a piece stands.

        Args:
            where: the qualified name.
            hint: the last parts of the module's name; heeded only where the piece stands in several modules.
            before: the piece.

        Raises:
            NoPlace: it stands nowhere, or in several places.
        """
        wanted = parsed(before)
        counts = {module: len(matches(scope, wanted)) for module, scope in self._scopes.get(where, ())}
        found = {module: count for module, count in counts.items() if count}
        if len(found) > 1 and hint:
            found = {m: c for m, c in found.items() if m.endswith("." + hint)} or found
        if list(found.values()) != [1]:
            raise NoPlace(f"{where or 'the module'} ({hint or 'any module'}) holds {found or 'nowhere'}: {before}")
        return next(iter(found))

    def changed(self, where: str, hint: str, before: str, after: str) -> tuple[str, str]:
        """The module in which a piece stands, and its whole text with another piece in that place.

        Raises:
            NoPlace: as for `place`.
        """
        module = self.place(where, hint, before)
        tree = copy.deepcopy(self._trees[module])
        wanted = parsed(before)
        made: Node = parsed(after) if not isinstance(wanted, list) else ast.parse(after).body
        scope = next(scope for name, scope in scopes(tree) if name == where and matches(scope, wanted))
        replaced(tree, matches(scope, wanted)[0], wanted, made)
        return module, ast.unparse(tree) + "\n"
