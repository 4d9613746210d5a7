"""What could make a run of the tests red by chance, found in their own source: randomness without a seed, clocks, short patience.

In: the tests. Out: one failing test for each rule that is broken, naming file and line. Holds: each rule is a function from text
to findings, with planted faults beside it. Not covered: the noise itself, which is drawn from the operating system: what is
asked of it has a stated rate of false alarms (docs/testing.md).
"""

import ast
import functools
import pathlib
from collections.abc import Callable, Iterator

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

from tests.helpers.source import ROOT, nodes

TESTS = sorted((ROOT / "tests").rglob("*.py"))

SHORTEST = 60
"""Seconds for which a test waits at least before it calls something hung: a busy machine is twenty times slower."""

SEEDED = {"default_rng", "Random", "RandomState", "SeedSequence", "PCG64", "Philox"}
MADE_ANYWHERE = {"Generator", "BitGenerator"}
CLOCKS = {"time", "monotonic", "perf_counter", "time_ns", "monotonic_ns", "perf_counter_ns", "process_time"}
WAITS = {"join", "wait", "communicate", "result"}


def written(node: ast.expr) -> str:
    """What `ast.unparse` says of an expression, a hundred times sooner where it is a name with dots.

    >>> [written(ast.parse(text, mode="eval").body) for text in ("a", "a.b.c", "f(1).b")]
    ['a', 'a.b.c', 'f(1).b']
    """
    names = []
    base = node
    while isinstance(base, ast.Attribute):
        names.append(base.attr)
        base = base.value
    return ".".join((base.id, *reversed(names))) if isinstance(base, ast.Name) else ast.unparse(node)


def without_seed(source: str) -> Iterator[int]:
    """Lines that draw what no seed decides."""
    module, *_ = found = nodes(source)
    assert isinstance(module, ast.Module)
    global_random = any(
        isinstance(node, ast.Import) and any(a.name == "random" for a in node.names) for node in module.body
    )
    for node in found:
        if isinstance(node, ast.ImportFrom) and node.module in ("random", "secrets", "numpy.random"):
            yield from (node.lineno for name in node.names if name.name not in SEEDED | MADE_ANYWHERE)
        elif isinstance(node, ast.Import):
            yield from (node.lineno for name in node.names if name.name == "secrets")
        elif isinstance(node, ast.Attribute) and node.attr in ("urandom", "getrandom", "SystemRandom"):
            yield node.lineno
        elif isinstance(node, ast.Call):
            name = written(node.func)
            empty = all(isinstance(given, ast.Constant) and given.value is None for given in node.args)
            if name.rpartition(".")[2] in SEEDED and empty and not node.keywords:
                yield node.lineno
            owner, _, function = name.rpartition(".")
            if owner in ("np.random", "numpy.random") or (owner == "random" and global_random):
                yield from [node.lineno] * (function not in SEEDED | MADE_ANYWHERE)


def other_examples(source: str) -> Iterator[int]:
    """Lines on which a test leaves the profile of hypothesis that the whole run has, but for what repeats."""
    for node in nodes(source):
        if isinstance(node, ast.Call):
            name = written(node.func).rpartition(".")[2]
            if name == "settings":
                wrong = [(word.arg, ast.unparse(word.value)) for word in node.keywords]
                fits = {("deadline", "None"), ("derandomize", "True"), ("database", "None")}
                yield from (node.lineno for word in wrong if word[0] in dict(fits) and word not in fits)
            elif name in ("load_profile", "register_profile", "reproduce_failure") or (
                name == "seed" and written(node.func) in ("seed", "hypothesis.seed")
            ):
                yield node.lineno


def by_the_clock(source: str) -> Iterator[int]:
    """Lines that ask for less than a minute of wall clock or for any time of a processor, or wait for no longer."""
    for node in nodes(source):
        if isinstance(node, ast.Assert) and not asks_for_more(node.test):
            clocks = [call for call in ast.walk(node) if isinstance(call, ast.Call) and call_of(call, CLOCKS, "time")]
            processor = any(call_of(call, {"process_time"}, "time") for call in clocks)
            yield from (node.lineno for _ in clocks if processor or any(short(part) for part in ast.walk(node)))
        elif isinstance(node, ast.Call):
            waited = [word.value for word in node.keywords if word.arg == "timeout"]
            waited += node.args[:1] if call_of(node, WAITS) else []
            waited += node.args[1:2] if written(node.func) in ("until", "wait_for") else []
            yield from (node.lineno for value in waited if short(value))


def asks_for_more(test: ast.expr) -> bool:
    """Whether a time has to be longer than a number, which no busy machine makes untrue."""
    return isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Gt) and not isinstance(test.left, ast.Constant)


def call_of(node: ast.Call, names: set[str], owner: str = "") -> bool:
    """Whether a method of one of these names is called."""
    function = node.func
    return isinstance(function, ast.Attribute) and function.attr in names and owner in ("", written(function.value))


def short(node: ast.AST) -> bool:
    """Whether this is a number of seconds below the shortest patience."""
    number = isinstance(node, ast.Constant) and type(node.value) in (int, float)
    return number and node.value < SHORTEST


Rule = Callable[[str], Iterator[int]]

RULES: dict[Rule, tuple[list[str], list[str]]] = {
    without_seed: (
        [
            "import numpy as np\nnp.random.default_rng()",
            "import numpy as np\nnp.random.default_rng(None)",
            "import numpy as np\nnp.random.normal(0, 1)",
            "import random\nrandom.Random()",
            "import random\nrandom.random()",
            "import random\nrandom.SystemRandom()",
            "from random import choice",
            "from secrets import token_bytes",
            "import secrets",
            "import os\nos.urandom(8)",
            "from numpy.random import default_rng\ndefault_rng()",
        ],
        [
            "import numpy as np\nnp.random.default_rng(3).normal()",
            "import random\nrandom.Random(3).random()",
            "def f(random): return random.choice([1])",
            "from numpy.random import default_rng\ndefault_rng(seed=1)",
        ],
    ),
    other_examples: (
        [
            "@settings(deadline=200)\ndef f(): ...",
            "@hypothesis.settings(derandomize=False)\ndef f(): ...",
            "settings(database=DirectoryBasedExampleDatabase('x'))",
            "hypothesis.settings.load_profile('own')",
            "@seed(3)\ndef f(): ...",
            "@reproduce_failure('6', b'')\ndef f(): ...",
        ],
        ["@settings(max_examples=40, deadline=None)\ndef f(): ...", "settings(derandomize=True, database=None)"],
    ),
    by_the_clock: (
        [
            "assert time.monotonic() - begun < 20",
            "assert 3 > time.perf_counter() - begun",
            "assert time.process_time() - begun < 500",
            "subprocess.run(command, timeout=5)",
            "thread.join(10)",
            "go.wait(20.0)",
            "until(found, 10.0)",
        ],
        [
            "assert time.monotonic() < end",
            "assert time.process_time() - begun > LIMIT",
            "subprocess.run(command, timeout=240)",
            "thread.join()",
            "', '.join(words)",
        ],
    ),
}


@functools.cache
def findings() -> dict[tuple[Rule, pathlib.Path], list[int]]:
    """The lines that each rule finds in each file. A file meets all rules in turn, so that its text is parsed once."""
    return {(rule, path): list(rule(text)) for path in TESTS for text in (path.read_text(),) for rule in RULES}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_nothing_that_a_test_does_is_left_to_chance(rule: Rule) -> None:
    exempt = (
        {ROOT / "tests" / "conftest.py", ROOT / "tests" / "mutants" / "server.py"}
        if rule is other_examples
        else set[pathlib.Path]()
    )
    read = [path for path in TESTS if path not in exempt]
    assert len(read) > 200
    found = [f"{path.relative_to(ROOT)}:{line}" for path in read for line in findings()[rule, path]]
    assert not found, "\n".join(found)


def _named(given: object) -> str:
    """The same in every process: what `str` says of a function has its place in memory."""
    return getattr(given, "__name__", str(given))


@pytest.mark.parametrize(
    ("rule", "fault"), [(rule, fault) for rule, (faults, _) in RULES.items() for fault in faults], ids=_named
)
def test_what_is_left_to_chance_is_found(rule: Rule, fault: str) -> None:
    assert list(rule(fault))


@pytest.mark.parametrize(
    ("rule", "fine"), [(rule, fine) for rule, (_, well) in RULES.items() for fine in well], ids=_named
)
def test_what_repeats_is_no_finding(rule: Rule, fine: str) -> None:
    assert not list(rule(fine))


def exploring() -> bool:
    """Whether this is a run of `make test-all`, which looks for new examples."""
    return hypothesis.settings.get_current_profile_name() == "explore"


def test_every_property_in_this_run_looks_at_the_same_examples_each_time(request: pytest.FixtureRequest) -> None:
    if exploring():
        pytest.skip("this run explores")
    functions = [getattr(item, "obj", None) for item in request.session.items]
    asked = [getattr(one, "_hypothesis_internal_use_settings", None) for one in (*functions, an_example)]
    told = [settings for settings in asked if settings is not None]
    assert told  # ours, below, at least
    assert all(one.derandomize and one.database is None and one.deadline is None for one in told)


SEEN: list[list[int]] = [[]]


@given(st.integers())
def an_example(number: int) -> None:
    SEEN[-1].append(number)


def test_a_property_looks_at_the_same_examples_twice_unless_the_run_explores() -> None:
    for _ in range(2):
        SEEN.append([])
        an_example()
    # With one seed for the whole run, an exploring one repeats itself too; without one it does not.
    if not exploring():
        assert len(SEEN[-1]) > 50
        assert SEEN[-1] == SEEN[-2]


def test_examples_do_not_depend_on_which_modules_are_loaded() -> None:
    if hypothesis.settings.get_current_profile_name() == "explore":
        pytest.skip("examples are new in each run")
    given(st.floats())(lambda _: None)()
    assert len(providers._get_local_constants()) == 0


def test_constants_of_our_own_modules_would_be_examples_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "is_local_module_file", lambda path: path == __file__)
    monkeypatch.setattr(providers, "_seen_modules", set())
    monkeypatch.setattr(providers, "_sys_modules_len", None)
    monkeypatch.setattr(providers, "_local_constants", providers.Constants())
    assert len(providers._get_local_constants()) > 0
