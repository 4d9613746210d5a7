"""The real coins of devices, in Python and in JavaScript: fair, of all their bits, and of no other process.

In: what each client draws, without anything in its place. Out: a failing test where a bit is not fair, where bits or words are
alike, or where two processes draw the same. Holds: all tests of this file together raise a false alarm with probability below
1e-9 in one run; each docstring says why. Not covered: a generator of the operating system that is broken in a way that no test
of outputs can see.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dp_pipelines.collect.coins import SystemCoins
from dp_pipelines.collect.domain import Choices
from dp_pipelines.collect.question import Question
from dp_pipelines.noise import entropy
from tests.helpers.coin_statistics import most_repeats, repeats, unfair_bits

CLIENT = Path(__file__).parents[2] / "examples" / "collect" / "client.js"
NUMBER = 2**20

JAVASCRIPT = """
const fs = require('fs');
const [client, bits, number] = process.argv.slice(1);
const systemCoin = new Function('module', fs.readFileSync(client, 'utf8') + '\\nreturn systemCoin;')({});
fs.writeSync(1, new Uint8Array(Float64Array.from({ length: Number(number) }, () => systemCoin(Number(bits))).buffer));
"""
REPORTS = """
const { report } = require(process.argv[1]);
const question = JSON.parse(process.argv[2]);
console.log(JSON.stringify(Array.from({ length: Number(process.argv[3]) }, () => report(question, 0).report)));
"""
FORKED = """
import os
from dp_pipelines.collect.coins import SystemCoins
from dp_pipelines.noise import entropy
coins = SystemCoins()
draw = lambda: [*(coins.draw(52) for _ in range(64)), *(int(word) >> 12 for word in entropy.words(64))]
first = draw()
inside, outside = os.pipe()
if os.fork() == 0:
    os.write(outside, " ".join(map(str, draw())).encode())
    os._exit(0)
print(*first, *draw(), os.read(inside, 65536).decode())
"""

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")


def of_python(bits: int, number: int) -> NDArray[np.uint64]:
    coins = SystemCoins()
    return np.array([coins.draw(bits) for _ in range(number)], dtype=np.uint64)


def of_javascript(bits: int, number: int) -> NDArray[np.uint64]:
    command = ["node", "-e", JAVASCRIPT, str(CLIENT), str(bits), str(number)]
    output = subprocess.run(command, capture_output=True, check=True, timeout=120).stdout
    coins = np.frombuffer(output, dtype=np.float64)
    assert len(coins) == number
    assert np.array_equal(coins, np.floor(coins))
    return coins.astype(np.uint64)


Drawn = Callable[[int, int], NDArray[np.uint64]]
CLIENTS = [pytest.param(of_python, id="python"), pytest.param(of_javascript, id="javascript", marks=needs_node)]


@pytest.mark.parametrize("drawn", CLIENTS)
def test_real_coins_have_fair_bits_and_as_many_different_words_as_chance_gives(drawn: Drawn) -> None:
    """`unfair_bits` errs with probability at most 1e-13, `most_repeats` with at most 1e-10: 2.1e-10 for both clients."""
    coins = drawn(52, NUMBER)
    assert coins.max() < 2**52
    assert unfair_bits(coins, 52) == []
    assert repeats(coins) <= most_repeats(NUMBER, 52)


@pytest.mark.parametrize("drawn", CLIENTS)
@pytest.mark.parametrize("bits", [1, 7, 8, 9, 31, 32, 33, 51])
def test_real_coins_of_any_width_are_within_it_and_fair(drawn: Drawn, bits: int) -> None:
    """Each of 16 cases errs with probability at most 1e-13 (`unfair_bits`)."""
    coins = drawn(bits, 2**14)
    assert coins.max() < 2**bits
    assert unfair_bits(coins, bits) == []


@pytest.mark.parametrize("client", ["python", pytest.param("javascript", marks=needs_node)])
def test_answers_are_drawn_with_real_coins(client: str) -> None:
    """The hash of local hashing is two coins of 32 bits as they were drawn.

    `unfair_bits` errs with probability at most 1e-13, `most_repeats` with at most 1e-10: 2.1e-10 for both clients.
    """
    number = 2**13
    question = Question("asked", Choices(tuple(range(100))), epsilon=1, mechanism="local_hashing")
    if client == "python":
        reports = [question.report(0)["report"] for _ in range(number)]
    else:
        command = ["node", "-e", REPORTS, str(CLIENT), question.to_json(), str(number)]
        reports = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=120).stdout)
    a, b, buckets = np.array(reports, dtype=np.uint64).T
    hashes = a << np.uint64(32) | b
    assert unfair_bits(hashes, 64) == []
    assert repeats(hashes) <= most_repeats(number, 64)
    assert set(buckets.tolist()) == set(range(4))  # each is missing with probability below (3/4 + .1)^8192 = 1e-578


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_two_processes_and_their_forks_never_draw_the_same() -> None:
    """768 words of 52 bits have 2^18.2 pairs: two are alike with probability below 2^(18.2 - 52) = 7e-11."""
    drawn: list[int] = []
    for _ in range(2):
        run = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=True, timeout=120)
        drawn += map(int, run.stdout.split())
    assert len(drawn) == len(set(drawn)) == 768


@needs_node
def test_two_processes_of_javascript_never_draw_the_same() -> None:
    """512 words of 52 bits have 2^17 pairs: two are alike with probability below 2^(17 - 52) = 3e-11."""
    drawn = np.concatenate([of_javascript(52, 256), of_javascript(52, 256)])
    assert repeats(drawn) == 0


def counter(width: int) -> NDArray[np.uint64]:
    return np.arange(2**14, dtype=np.uint64) & np.uint64(2**width - 1)


@pytest.mark.parametrize(
    "spoilt",
    [
        lambda words: words & ~np.uint64(1 << 17),  # a bit that is never set
        lambda words: words | words << np.uint64(26) & np.uint64(2**52 - 1),  # set too often
        lambda words: (words & np.uint64(2**26 - 1)) * np.uint64(2**26 + 1),  # half of the bits twice
        lambda words: np.repeat(words[::2], 2),  # each word twice
        lambda words: words[:1] + counter(52),  # a counter
    ],
)
def test_each_defect_of_coins_is_seen(spoilt: Callable[[NDArray[np.uint64]], NDArray[np.uint64]]) -> None:
    words = of_python(52, 2**14)
    assert unfair_bits(words, 52) == []
    assert unfair_bits(spoilt(words), 52)


@pytest.mark.parametrize("random_bits", [8, 16, 24, 32])
def test_few_random_bits_behind_a_hash_are_seen_by_words_that_come_again(random_bits: int) -> None:
    """With 2^32 different words 2^20 draws have 128 repeats on average, and 2 or fewer with probability below 1e-50."""
    few = entropy.words(NUMBER) & np.uint64(2**random_bits - 1)
    hashed = (few * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(12)
    assert repeats(hashed) > most_repeats(NUMBER, 52)
