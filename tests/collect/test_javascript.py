"""The client in JavaScript answers as the one in Python does, coin by coin, and refuses the same documents.

In: questions of every mechanism, values, coins; forged documents. Out: reports or refusals of both. Holds: some of the vectors
are kept in a file that other ports can read. Not covered: browsers; Node runs the file.
"""

import json
import math
import random
import shutil
import subprocess
from collections.abc import Iterator
from decimal import Context, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dp_pipelines.collect.domain import Choices, NumberBins, NumberGrid
from dp_pipelines.collect.question import FOR_CHOICES, FOR_NUMBERS, Question
from dp_pipelines.errors import RequestError
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
REFUSED = """
const { report } = require(process.argv[1]);
const cases = JSON.parse(require('fs').readFileSync(0, 'utf8'));
console.log(JSON.stringify(cases.map(({ question, value }) => {
  try {
    report(question, value);
    return null;
  } catch (error) {
    return /^\\w+/.exec(error.message)[0];
  }
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
    reports: list[list[int]] = of_node(RUN, cases)
    return reports


def of_node(script: str, cases: list[dict[str, Any]]) -> Any:
    """Return what a script of Node prints for cases."""
    run = subprocess.run(
        ["node", "-e", script, str(CLIENT)],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@needs_node
def test_both_clients_answer_alike_coin_by_coin() -> None:
    chance = random.Random(7)
    small = [question for question in questions() if question.domain.size < 10_000]
    cases = [case(question, chance) for question in small for _ in range(30)]
    cases += [case(question, chance) for question in questions() if question.domain.size >= 10_000]
    assert answers(cases) == [each["report"] for each in cases]


@needs_node
def test_vectors_for_other_ports_hold_for_both_clients() -> None:
    cases = [each for each in json.loads(VECTORS.read_text()) if "refused" not in each]
    assert {each["question"]["mechanism"] for each in cases} == {*FOR_CHOICES, *FOR_NUMBERS}
    assert answers(cases) == [each["report"] for each in cases]
    for each in cases:
        question = Question.from_json(json.dumps(each["question"]))
        found = question.randomizer.respond(question.domain.index_of(each["value"]), Replayed(each["coins"]))
        assert list(found) == each["report"]


@needs_node
def test_forged_vectors_are_refused_by_both_clients() -> None:
    cases = [each for each in json.loads(VECTORS.read_text()) if "refused" in each]
    assert {each["question"]["mechanism"] for each in cases} >= {*FOR_CHOICES, *FOR_NUMBERS}
    assert of_node(REFUSED, cases) == [each["refused"] for each in cases]
    assert [refused_field(each["question"]) for each in cases] == [each["refused"] for each in cases]


@needs_node
def test_both_clients_refuse_the_same_documents() -> None:
    cases = [
        {"question": changed, "value": value_of(question)}
        for question in forged_from()
        for changed in changed_documents(json.loads(question.to_json()))
    ]
    of_python = [refused_field(each["question"]) for each in cases]
    of_javascript = of_node(REFUSED, cases)
    assert len(cases) > 2000
    differing = [
        (each["question"], mine, other)
        for each, mine, other in zip(cases, of_python, of_javascript, strict=True)
        if (mine is None) != (other is None)
    ]
    assert differing == []
    accepted = [each["question"] for each, mine in zip(cases, of_python, strict=True) if mine is None]
    assert all(Question.from_json(json.dumps(each)).randomizer.ratio() <= exp_of(each["epsilon"]) for each in accepted)


@needs_node
def test_numbers_next_to_an_edge_have_the_same_place_for_both_clients() -> None:
    chance = random.Random(11)
    bins = Question("asked", NumberBins((-1, "0.1", "0.3", "0.7", 5), otherwise="0.3"), epsilon=1, mechanism="d_ary")
    grid = Question("asked", NumberGrid("-0.3", "0.9", 4, otherwise="0.15"), epsilon=1, mechanism="one_bit")
    edges = [-1.0, 0.1, 0.3, 0.7, 5.0, -0.3, 0.0, 0.15, 0.45, 0.75, 0.9]
    near = [math.nextafter(edge, toward) for edge in edges for toward in (-math.inf, math.inf)]
    numbers = [*edges, *near, 1e300, -1e300, 5e-324, *(chance.uniform(-1.5, 6) for _ in range(200))]
    values: list[Any] = [*numbers, "text", True, None]
    cases = []
    for question in (bins, grid):
        for value in values:
            coins = [chance.choice([2**52 - 1, chance.getrandbits(52)])]
            report = question.randomizer.respond(question.domain.index_of(value), Replayed(coins))
            cases.append(
                {"question": json.loads(question.to_json()), "value": value, "coins": coins, "report": list(report)}
            )
    assert answers(cases) == [each["report"] for each in cases]


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


def forged_from() -> list[Question]:
    """Questions of all mechanisms and domains, small enough to change in every way."""
    of_choices = [
        Question("asked", Choices(("yes", "no", 7), otherwise="no"), epsilon="1.5", mechanism=mechanism)
        for mechanism in FOR_CHOICES
    ]
    of_numbers = [
        Question("asked", NumberGrid("-0.5", 24, 8, otherwise=1), epsilon="0.5", mechanism=mechanism)
        for mechanism in FOR_NUMBERS
    ]
    bins = [
        Question("asked", NumberBins((0, "0.5", 2), otherwise=1), epsilon="12", mechanism=name) for name in FOR_CHOICES
    ]
    return [*of_choices, *of_numbers, *bins]


JUNK: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2,
        3,
        1.5,
        2**52,
        2**53 - 1,
        10**15,
        "",
        "x",
        "yes",
        "a/b",
        ".a",
        "__a",
        "report",
        "a\nb",
    ),
    *(
        "0",
        "-0",
        "1",
        "1.0",
        "01",
        "+1",
        " 1",
        "1e0",
        ".5",
        "5.",
        "0.10",
        "1_0",
        "٣",
        "-1",
        "11.99",
        "12.00",
        "12.1",
        "nan",
    ),
    *(
        "0." + "1" * 20,
        "0." + "1" * 21,
        "1e-15",
        "0." + "0" * 19 + "1",
        "0." + "0" * 21 + "1",
        "0.0000000000000001",
        "9" * 21,
    ),
    *(
        "auto",
        "d_ary",
        "unary",
        "hadamard",
        "local_hashing",
        "one_bit",
        "piecewise",
        "constructor",
        "__proto__",
        "\ud800",
    ),
    *(
        [],
        ["value"],
        ["yes", "no"],
        [0, 1],
        ["yes", "yes"],
        ["0", "1", "2"],
        ["1", "0", "2"],
        ["0", "1", 2],
        {},
        {"other": 1},
    ),
]
"""What is put in the place of each part of a document."""


def changed_documents(document: Any) -> Iterator[Any]:
    """Yield the document with one part left out, replaced, doubled, or added, at any depth."""
    if isinstance(document, dict):
        yield document | {"also": None}
        yield document | {"also": 1}
        for key, part in document.items():
            yield {name: other for name, other in document.items() if name != key}
            yield from (document | {key: changed} for changed in changed_documents(part))
    elif isinstance(document, list):
        for place, part in enumerate(document):
            yield document[:place] + document[place + 1 :]
            yield [*document[:place], part, *document[place:]]
            yield from ([*document[:place], changed, *document[place + 1 :]] for changed in changed_documents(part))
        yield document[::-1]
    elif isinstance(document, int):
        yield from (document + 1, document - 1, str(document))
    yield from JUNK


def forged_vectors() -> list[Any]:
    """Return forged documents for ports: for each mechanism chances of a larger epsilon, and one document for each other rule."""
    documents = [json.loads(question.to_json()) for question in forged_from()[:6]]
    larger = [Question(q.name, q.domain, epsilon=3, mechanism=q.mechanism) for q in forged_from()[:6]]
    chances = [
        document | {"parameters": json.loads(question.to_json())["parameters"]}
        for document, question in zip(documents, larger, strict=True)
    ]
    by_one = [
        document | {"parameters": document["parameters"] | {name: number + step}}
        for document in documents
        for name, number in document["parameters"].items()
        for step in (1, -1)
    ]
    choice, grid = documents[0], documents[4]
    bins = json.loads(forged_from()[6].to_json())
    others = [
        *(
            choice | change
            for change in ({"format": "dp_pipelines.question/2"}, {"bits": 53}, {"bits": 40}, {"also": 1})
        ),
        *(choice | {"epsilon": epsilon} for epsilon in ("0", "-1", "12.5", "1.50", 1.5, "nan", "0.0000000000000001")),
        *(choice | {"mechanism": name} for name in ("unary", "auto", "one_bit", "constructor")),
        *(
            choice | {"values": values}
            for values in (["yes"], ["yes", "no", "no"], ["yes", "no", 1.5], ["yes", "no", True])
        ),
        *(
            choice | change
            for change in ({"otherwise": "perhaps"}, {"otherwise": None}, {"fields": ["other"]}, {"name": "a/b"})
        ),
        *(
            grid | change
            for change in ({"steps": 7}, {"steps": 2048}, {"low": "24"}, {"low": "1e0"}, {"otherwise": "25"})
        ),
        *(bins | {"edges": edges} for edges in (["0", "2", "2"], ["0", "0.5"], ["0", "1e0", "2"])),
    ]
    return [*chances, *by_one, *others]


def refused_field(document: Any) -> str | None:
    """Return the field that Python's client refuses in a document; None where it is accepted."""
    try:
        Question.from_json(json.dumps(document))
    except RequestError as error:
        return str(error.field).partition("[")[0]
    return None


def value_of(question: Question) -> Any:
    """Return a value that the question may be asked about, whatever became of its list."""
    return "no" if isinstance(question.domain, Choices) else 1


def exp_of(epsilon: str) -> Fraction:
    """Return an upper bound of e^epsilon."""
    return Fraction(Decimal(epsilon).exp(Context(prec=60))) + Fraction(1, 10**50)


def write_vectors() -> None:
    """Make `vectors.json` anew: `python -c "from tests.collect import test_javascript as t; t.write_vectors()"`."""
    chance = random.Random(1)
    small = [
        question for question in questions() if question.domain.size <= 40 or isinstance(question.domain, NumberGrid)
    ]
    lines = [json.dumps(case(question, chance)) for question in small for _ in range(2)]
    for document in forged_vectors():
        value = document.get("low", document.get("values", [0])[0])
        lines.append(json.dumps({"question": document, "value": value, "refused": refused_field(document)}))
    VECTORS.write_text("[\n" + ",\n".join(lines) + "\n]\n")
