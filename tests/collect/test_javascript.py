"""The client in JavaScript answers as the one in Python does, coin by coin.

In: questions of every mechanism, values, coins. Out: reports of both. Holds: some of the vectors are kept in a file that other
ports can read. Not covered: browsers; Node runs the file.
"""

import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dp_pipelines.collect.domain import Choices, NumberBins, NumberGrid
from dp_pipelines.collect.question import FOR_CHOICES, FOR_NUMBERS, Question
from tests.collect.enumerated import Asking, Replayed

CLIENT = Path(__file__).parents[2] / "examples" / "collect" / "client.js"
VECTORS = CLIENT.with_name("vectors.json")
RUN = """
const { report } = require(process.argv[1]);
const cases = JSON.parse(require('fs').readFileSync(0, 'utf8'));
console.log(JSON.stringify(cases.map(({ question, value, coins }) => {
  if (!coins) return report(question, value).report;
  const left = coins.slice();
  return report(question, value, () => left.shift()).report;
})));
"""

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")


def questions() -> list[Question]:
    sizes = {"d_ary": (2, 7, 1000), "unary": (2, 40), "local_hashing": (40, 100_000), "hadamard": (2, 40, 100_000)}
    of_values = [
        Question("asked", Choices(tuple(range(size))), epsilon=epsilon, mechanism=mechanism)
        for mechanism in FOR_CHOICES
        for size in sizes[mechanism]
        for epsilon in ("0.5", "1", "4")
    ]
    of_numbers = [
        Question("asked", NumberGrid(0, 24, steps), epsilon=epsilon, mechanism=mechanism)
        for mechanism in FOR_NUMBERS
        for steps in (2, 1024)
        for epsilon in ("0.5", "1", "4")
    ]
    return [*of_values, *of_numbers, Question("asked", NumberBins((0, "1.5", 3, 6, 24)), epsilon=1, mechanism="unary")]


def case(question: Question, chance: random.Random) -> dict[str, Any]:
    """A value, coins and the report of the client in Python."""
    place = chance.randrange(question.domain.size)
    value = (
        question.domain.values[place]
        if isinstance(question.domain, Choices)
        else place * 24 / (question.domain.steps if isinstance(question.domain, NumberGrid) else 4)
    )
    asking = Asking()
    question.randomizer.respond(0, asking)
    # Half of the coins decide for the true value, and small ones meet the borders.
    coins = [chance.choice([chance.getrandbits(bits), 2**bits - 1 - chance.getrandbits(8), 0]) for bits in asking.asked]
    found = question.randomizer.respond(question.domain.index_of(value), Replayed(coins))
    return {"question": json.loads(question.to_json()), "value": value, "coins": coins, "report": list(found)}


def answers(cases: list[dict[str, Any]]) -> list[list[int]]:
    run = subprocess.run(
        ["node", "-e", RUN, str(CLIENT)],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    found: list[list[int]] = json.loads(run.stdout)
    return found


@needs_node
def test_both_clients_answer_alike_coin_by_coin() -> None:
    chance = random.Random(7)
    small = [question for question in questions() if question.domain.size < 10_000]
    cases = [case(question, chance) for question in small for _ in range(30)]
    cases += [case(question, chance) for question in questions() if question.domain.size >= 10_000]
    assert answers(cases) == [each["report"] for each in cases]


@needs_node
def test_vectors_for_other_ports_hold_for_both_clients() -> None:
    cases = json.loads(VECTORS.read_text())
    assert {each["question"]["mechanism"] for each in cases} == {*FOR_CHOICES, *FOR_NUMBERS}
    assert answers(cases) == [each["report"] for each in cases]
    for each in cases:
        question = Question.from_json(json.dumps(each["question"]))
        found = question.randomizer.respond(question.domain.index_of(each["value"]), Replayed(each["coins"]))
        assert list(found) == each["report"]


@needs_node
def test_its_own_coins_are_within_their_bits_and_differ() -> None:
    question = json.loads(Question("asked", NumberGrid(0, 24), epsilon=1, mechanism="piecewise").to_json())
    found = answers([{"question": question, "value": 12}] * 200)
    assert len({each[0] for each in found}) > 100
    assert all(0 <= each[0] < question["parameters"]["points"] for each in found)


@needs_node
def test_a_value_outside_the_list_is_refused_without_saying_it() -> None:
    question = json.loads(Question("asked", Choices(("yes", "no")), epsilon=1).to_json())
    script = RUN.replace("console.log", "void")
    run = subprocess.run(
        ["node", "-e", script, str(CLIENT)],
        input=json.dumps([{"question": question, "value": "hidden-one"}]),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert run.returncode != 0
    assert "is not one of the question's values" in run.stderr
    assert "hidden-one" not in run.stderr


def write_vectors() -> None:
    """Make `vectors.json` anew: `python -c "from tests.collect import test_javascript as t; t.write_vectors()"`."""
    chance = random.Random(1)
    small = [
        question for question in questions() if question.domain.size <= 40 or isinstance(question.domain, NumberGrid)
    ]
    lines = [json.dumps(case(question, chance)) for question in small for _ in range(2)]
    VECTORS.write_text("[\n" + ",\n".join(lines) + "\n]\n")
