"""Functions of a loaded module run the code of another text, for every caller; changes elsewhere are not taken for such ones.

In: small modules in temporary files. Out: what their functions give before and after.
"""

import functools
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutants import swap

TEXT = """
import functools

LIMIT = 1

class Law:
    @property
    def scale(self):
        return 1

    @scale.setter
    def scale(self, value):
        raise ValueError(value)

    def tail(self, x):
        def inner():
            return x + 1
        return inner()

@functools.lru_cache
def cached(x, more=1):
    return x + more
"""


@pytest.fixture
def law(tmp_path: Path) -> Iterator[ModuleType]:
    file = tmp_path / "small_law.py"
    file.write_text(TEXT)
    spec = importlib.util.spec_from_file_location("small_law", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["small_law"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["small_law"]


def exchanged(module: ModuleType, before: str, after: str) -> None:
    """Exchange the functions that differ."""
    codes = swap.changed_functions(TEXT, TEXT.replace(before, after))
    assert codes
    assert module.__file__
    swap.exchange("small_law", module.__file__, codes)


def test_every_caller_of_a_function_runs_the_new_code(law: ModuleType) -> None:
    imported, bound = law.cached, functools.partial(law.Law.tail, law.Law())
    assert (law.Law().scale, bound(1)) == (1, 2)
    exchanged(law, "return x + more", "return x - more")
    exchanged(law, "return x + 1", "return x + 3")
    exchanged(law, "return 1", "return 7")
    assert (law.Law().scale, bound(1), imported(1)) == (7, 4, 0)
    with pytest.raises(ValueError, match="5"):
        law.Law().scale = 5


@pytest.mark.parametrize(
    ("before", "after"),
    [("LIMIT = 1", "LIMIT = 2"), ("more=1", "more=2"), ("@property\n", "@functools.cached_property\n")],
)
def test_a_change_outside_of_functions_is_none_of_their_code(before: str, after: str) -> None:
    assert not swap.changed_functions(TEXT, TEXT.replace(before, after, 1))


def test_a_name_with_another_number_of_functions_is_an_error(law: ModuleType) -> None:
    codes = swap.changed_functions(TEXT, TEXT.replace("return x + 1", "return x + 2"))
    assert codes
    with pytest.raises(LookupError, match=r"Law\.tail"):
        swap.exchange("another", law.__file__ or "", codes)
