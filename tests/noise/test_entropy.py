"""The only door to randomness: fresh words, and nobody in the project goes around it.

Names of folders (uuid) are not randomness in this sense: nothing is drawn from them.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dp_pipelines.errors import RequestError
from dp_pipelines.noise import entropy
from tests.helpers.coin_statistics import most_repeats, repeats, unfair_bits

ROOT = Path(__file__).resolve().parents[2]
DOORS = {ROOT / "dp_pipelines" / "noise" / "entropy.py", ROOT / "dp_pipelines" / "collect" / "coins.py"}
SOURCES = [path for room in ("dp_pipelines", "transforms", "jobs") for path in sorted((ROOT / room).rglob("*.py"))]

MODULES = {"random", "secrets", "numpy.random", "jax.random", "randomgen"}
NAMES_OF_OS = {"urandom", "getrandom"}
DEVICES = {"/dev/random", "/dev/urandom", "/dev/hwrng"}


def goes_around_the_door(source: str) -> Iterator[str]:
    """Every use of another source of randomness in a module's text, which is parsed if one of their names is in it."""
    if not re.search("random|secrets|default_rng|hwrng", source):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if node.module in MODULES or f"{node.module}.{alias.name}" in MODULES:
                    yield f"{node.module}.{alias.name}"
                if alias.name in NAMES_OF_OS:
                    yield alias.name
        elif isinstance(node, ast.Attribute) and node.attr in NAMES_OF_OS | {"random", "default_rng"}:
            yield ast.unparse(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in DEVICES:
            yield node.value


def test_nothing_goes_around_the_only_doors_to_randomness() -> None:
    assert set(SOURCES) >= DOORS
    found = {str(path.relative_to(ROOT)): list(goes_around_the_door(path.read_text())) for path in SOURCES}
    assert all(found.pop(str(door.relative_to(ROOT))) for door in DOORS), "the doors themselves must be seen"
    assert not {path: uses for path, uses in found.items() if uses}


@pytest.mark.parametrize(
    "fault",
    [
        "import random",
        "from random import gauss",
        "import numpy.random as r",
        "from numpy import random",
        "import numpy as np\nnp.random.default_rng()",
        "import numpy\nnumpy.random.normal()",
        "from jax import random",
        "import secrets",
        "import os\nos.urandom(8)",
        "from os import urandom",
        "import os\nos.getrandom(8)",
        "def f():\n    with open('/dev/urandom', 'rb') as f: pass",
        "open('/dev/hwrng')",
        "import randomgen",
    ],
)
def test_every_way_around_the_door_is_found(fault: str) -> None:
    assert list(goes_around_the_door(fault))


@pytest.mark.parametrize("n", [0, 1, 5, entropy.BLOCK_WORDS, entropy.BLOCK_WORDS + 1, 3 * entropy.BLOCK_WORDS + 7])
def test_words_come_in_any_number_and_never_twice(n: int) -> None:
    first, second = entropy.words(n), entropy.words(n)
    assert first.shape == (n,)
    assert first.dtype == np.uint64
    assert len({*first.tolist(), *second.tolist()}) == 2 * n


def test_words_have_fair_bits_and_none_comes_twice() -> None:
    """`unfair_bits` errs with probability at most 1e-13, `most_repeats` with at most 1e-10."""
    words = entropy.words(1 << 20)
    assert unfair_bits(words, 64) == []
    assert repeats(words) <= most_repeats(len(words), 64)
    assert "bit 63" in unfair_bits(words >> np.uint64(1), 64)[0]


def test_salts_have_fair_bits_and_none_comes_twice() -> None:
    """`unfair_bits` errs with probability at most 1e-13, `most_repeats` with at most 1e-10."""
    salts = np.frombuffer(b"".join(entropy.salt(64) for _ in range(2**14)), dtype=np.uint64)
    assert unfair_bits(salts, 64) == []
    assert repeats(salts) <= most_repeats(len(salts), 64)


def test_a_salt_is_fresh_and_has_the_size_asked_for() -> None:
    assert entropy.salt() != entropy.salt()
    assert [len(entropy.salt(size)) for size in (8, 16, 64)] == [8, 16, 64]


@pytest.mark.parametrize("size", [0, 7, 65, -1, 16.0, True, None])
def test_a_salt_of_a_wrong_size_is_refused(size: object) -> None:
    with pytest.raises(RequestError, match="size"):
        entropy.salt(size)  # type: ignore[arg-type]
