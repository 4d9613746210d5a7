"""Three figures per package that show how far its language is from plain English; each may only fall.

In: the checkout and the limits in tests/words.yaml. Out: one failing test per package that names the lines to rewrite. Holds:
the figures are counted in docstrings, comments and assigned names. Not covered: whether a sentence is true or easy to read.

Rewrite a sentence as you would say it to a colleague; replacing one listed word by another gains nothing. When the figures of
a package have fallen, write the new ones as its limits: `python -m tests.test_words` prints the table as it should be.
"""

import ast
import functools
import io
import math
import re
import tokenize
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import yaml

from tests.helpers.source import PACKAGE_FOLDERS, ROOT, nodes

LIMITS = ROOT / "tests" / "words.yaml"

OPENERS = frozenset(["what", "how", "whether", "which", "where", "who", "whom", "whose", "of", "that"])
"""First words of docstrings that say neither what a function does nor what a class is."""

PARTICIPLES = frozenset(["found", "said", "told", "kept", "held", "asked", "made", "shown", "meant", "wanted", "gone"])
"""Names of variables that do not say what they hold."""

PHRASES = re.compile(r"\b(stands?|beside|whoever|(?<!there )is no |told|mends?|mended)\b", re.IGNORECASE)

AIMS = {"openers": 1.5, "participles": 5.0, "phrases": 0.3}
"""Openers of 100 docstrings, participles of 1,000 assigned names, phrases of 1,000 words: no limit needs to be lower."""

PER = {"openers": 100, "participles": 1000, "phrases": 1000}

SLACK = {"openers": 2, "participles": 2, "phrases": 2}
"""The most occurrences by which a limit may exceed the figure (or a tenth of them), so that limits fall with the figures."""


class Figures(NamedTuple):
    """One figure of one package: the places that count, and the number of all docstrings, names or words."""

    places: tuple[str, ...]
    total: int

    def share(self, name: str) -> float:
        """Return the share in the unit of `AIMS`, rounded up to a tenth."""
        return math.ceil(10 * PER[name] * len(self.places) / max(self.total, 1) - 1e-9) / 10

    def allowed(self, name: str, limit: float) -> int:
        """Return the number of places that a limit allows, rounded up."""
        return math.ceil(limit * self.total / PER[name] - 1e-9)


class _Counter:
    """The figures of some files, added up file by file."""

    def __init__(self) -> None:
        self.places: dict[str, list[str]] = {name: [] for name in AIMS}
        self.totals = dict.fromkeys(AIMS, 0)

    def add(self, source: str, path: str) -> None:
        for node in nodes(source):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                if doc := ast.get_docstring(node):
                    place = f"{path}:{getattr(node, 'lineno', 1)} {doc.splitlines()[0][:90]}"
                    self.totals["openers"] += 1
                    if re.split(r"\W+", doc.strip(), maxsplit=1)[0].lower() in OPENERS:
                        self.places["openers"].append(place)
                    self._words(doc, place)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self.totals["participles"] += 1
                if node.id.strip("_").lower() in PARTICIPLES:
                    self.places["participles"].append(f"{path}:{node.lineno} {node.id}")
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                self._words(token.string, f"{path}:{token.start[0]} {token.string[:90]}")

    def _words(self, text: str, place: str) -> None:
        self.totals["phrases"] += len(text.split())
        self.places["phrases"] += [place] * len(PHRASES.findall(text))

    def figures(self) -> dict[str, Figures]:
        return {name: Figures(tuple(self.places[name]), self.totals[name]) for name in AIMS}


def package_of(parts: tuple[str, ...]) -> str:
    """Return the package whose limits count for a file, given its path: two names deep, three in extensions.

    >>> package_of(("dp_pipelines", "kernels", "columns", "cast.py")), package_of(("jobs", "x.py"))
    ('dp_pipelines/kernels', 'jobs')
    >>> package_of(("dp_pipelines", "jobs", "x.py"))  # as in a copy of the tree, or in a wheel
    'jobs'
    """
    if parts[:2] in (("dp_pipelines", "jobs"), ("dp_pipelines", "transforms")):
        parts = parts[1:]
    depth = 3 if parts[:2] == ("dp_pipelines", "extensions") else 2
    return "/".join(parts[:-1][:depth])


@functools.cache
def measured() -> dict[str, dict[str, Figures]]:
    """Return the figures of each package of the distribution."""
    counters: dict[str, _Counter] = {}
    for folder in PACKAGE_FOLDERS.values():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).parts
            counters.setdefault(package_of(parts), _Counter()).add(path.read_text(), "/".join(parts))
    return {package: counter.figures() for package, counter in sorted(counters.items())}


def table() -> Iterator[str]:
    """Yield the lines of tests/words.yaml that fit the figures of today."""
    for package, figures in measured().items():
        limits = {name: max(figure.share(name), AIMS[name]) for name, figure in figures.items()}
        yield f"{package}: {{{', '.join(f'{name}: {limit}' for name, limit in limits.items())}}}"


def _limits() -> dict[str, dict[str, float]]:
    limits: dict[str, dict[str, float]] = yaml.safe_load(LIMITS.read_text()) or {}
    return limits


def problems(package: str, name: str, figure: Figures, limit: float) -> str:
    """Return one message if a figure is above its limit, or its limit is too far above it; otherwise ""."""
    allowed, count = figure.allowed(name, limit), len(figure.places)
    if count > allowed:
        lines = "\n  ".join(figure.places)
        return f"{package}: {count} {name} of {figure.total}, its limit allows {allowed}; rewrite some of these:\n  {lines}"
    if limit > AIMS[name] and allowed > count + max(SLACK[name], count // 10):
        lower = max(figure.share(name), AIMS[name])
        return f"{package}: only {count} {name} of {figure.total} are left; write {name}: {lower} in tests/words.yaml"
    return ""


@pytest.mark.parametrize("package", sorted(_limits()))
def test_the_language_of_a_package_only_gets_plainer(package: str) -> None:
    figures = measured().get(package, {})
    wrong = [problems(package, name, figure, _limits()[package][name]) for name, figure in figures.items()]
    assert not any(wrong), "\n".join(filter(None, wrong))


def test_every_package_has_limits() -> None:
    missing = sorted(set(measured()) - set(_limits()))
    assert not missing, (
        f"add these packages to tests/words.yaml, as `python -m tests.test_words` prints them: {missing}"
    )


def test_planted_words_are_counted() -> None:
    counter = _Counter()
    counter.add('"""What stands beside it."""\nfound = 1  # there is no way, and it is no way\nrows = 2\n', "a.py")
    figures = counter.figures()
    assert {name: (len(figure.places), figure.total) for name, figure in figures.items()} == {
        "openers": (1, 1),
        "participles": (1, 2),
        "phrases": (3, 14),
    }


def test_a_limit_binds_from_above_and_from_below() -> None:
    figure = Figures(("a", "b", "c"), 100)
    assert problems("p", "openers", figure, 3.0) == "" == problems("p", "openers", figure, 5.0)
    assert "rewrite some of these" in problems("p", "openers", figure, 2.0)
    assert "write openers: 3.0" in problems("p", "openers", figure, 6.0)
    assert problems("p", "openers", Figures((), 100), AIMS["openers"]) == ""


if __name__ == "__main__":
    print("\n".join(table()))
