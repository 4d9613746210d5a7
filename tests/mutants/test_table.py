"""The table of faults fits the tree: each stands in one place and names tests that there are.

In: the table, the tree. Out: a failing test that names each one that does not fit, so that code may move and be renamed, but no
entry is lost unseen. Holds: nothing is planted here. Not covered: whether the tests find the faults (`make test-mutants`).
"""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.source import ROOT, modules, uncollected
from tests.mutants import equivalent, random_mutants, table, write_table
from tests.mutants.syntax import NoPlace, Trees

LEAST_FAULTS = 60


@pytest.fixture(scope="module")
def trees() -> Iterator[Trees]:
    with uncollected():
        yield Trees(modules())


def test_every_fault_stands_in_one_place_and_its_change_is_one(trees: Trees) -> None:
    @functools.cache
    def unchanged(module: str) -> str:
        return ast.dump(ast.parse(trees.files[module].read_text()))

    wrong = []
    for fault in table.faults():
        if fault.file:
            assert fault.changed_file(ROOT) != (ROOT / fault.file).read_text()
            continue
        try:
            module, text = trees.changed(fault.where, fault.module, fault.before, fault.after)
        except NoPlace as error:
            wrong.append(f"{fault.fault}: {error}")
            continue
        tree = ast.parse(text)
        compile(tree, module, "exec")
        if ast.dump(tree) == unchanged(module):
            wrong.append(f"{fault.fault}: changes nothing")
    assert not wrong, "\n".join(wrong)


def test_every_fault_names_tests_that_there_are() -> None:
    places = table.tests(ROOT)
    assert all(table.nodes(fault, places) for fault in table.faults())


def test_the_table_has_faults_of_every_subject_each_told_once() -> None:
    faults = table.faults()
    assert len(faults) >= LEAST_FAULTS
    assert {fault.subject for fault in faults} == set(table.SUBJECTS)
    assert len({fault.fault for fault in faults}) == len(faults)


def test_the_page_for_reviewers_holds_the_table() -> None:
    page = write_table.PAGE.read_text()
    assert write_table.written(page) == page, "run `python tests/mutants/write_table.py`"


def test_random_mutants_have_names_of_their_own_that_do_not_depend_on_files_or_lines() -> None:
    text = "def f(a):\n    return a + 1 < 2\n"
    here = [mutant.name for mutant in random_mutants.mutants("one.place", text)]
    assert here == [
        "f: return a + 1 < 2 -> return a + 1 <= 2",
        "f: return a + 1 < 2 -> return a - 1 < 2",
        "f: return a + 1 < 2 -> return a + 2 < 2",
        "f: return a + 1 < 2 -> return a + 1 < 3",
    ]
    moved = [mutant.name for mutant in random_mutants.mutants("another", '"""Words."""\n\n\n# A remark.\n' + text)]
    assert moved == here


def test_words_for_people_are_no_mutants() -> None:
    text = 'def f(a: "tuple[1]") -> None:\n    """1 < 2."""\n    assert a < 1\n    raise ValueError(1 + 2)\n'
    assert not random_mutants.mutants("any", text)


def test_every_reason_belongs_to_one_mutant_that_nobody_else_explains() -> None:
    listed = equivalent.listed()
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize(
    ("where", "hint", "before"),
    [
        ("f", "", "a < b"),  # nowhere
        ("g", "", "1 + 1"),  # twice in one function
        ("h", "", "a > b"),  # in two modules, and no hint
        ("h", "three", "a > b"),  # a hint that is wrong
    ],
)
def test_a_place_that_is_none_or_several_is_an_error(where: str, hint: str, before: str, tmp_path: Path) -> None:
    with pytest.raises(NoPlace):
        small(tmp_path).place(where, hint, before)


def test_a_piece_is_found_by_its_syntax_alone_and_replaced_there(tmp_path: Path) -> None:
    trees = small(tmp_path)
    assert trees.place("h", "two", "(a)   >   b") == "pack.two"
    module, text = trees.changed("K.m", "", "x = 1; y = 2", "x = 2")
    assert module == "pack.one"
    assert "def m(self):\n        x = 2\n        return x" in text
    assert "pass" in trees.changed("K.m", "", "x = 1; y = 2", "")[1]
    assert "LIMIT = 5" in trees.changed("LIMIT", "", "4", "5")[1]


def small(folder: Path) -> Trees:
    """Two modules, to be looked at."""
    one, two = folder / "one.py", folder / "two.py"
    one.write_text(
        "LIMIT = 4\n\ndef f(a, b):\n    return a > b\n\ndef g():\n    return 1 + 1, 1 + 1\n\ndef h(a, b):\n    return a > b\n\n"
        "class K:\n    def m(self):\n        x = 1\n        y = 2  # a remark\n        return x\n"
    )
    two.write_text("def h(a, b):\n    return not a > b\n")
    return Trees({"pack.one": one, "pack.two": two})
