"""A question that many devices are asked: its values, its epsilon, and how each device answers.

In: public arguments, or the file that was made from them. Out: a JSON document for all devices and the server; on a device,
reports. Holds: a document whose numbers do not follow from its epsilon is refused. Not covered: whose report comes when, and
how often.
"""

import json
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

from dp_pipelines import checks
from dp_pipelines.collect.coins import SystemCoins
from dp_pipelines.collect.d_ary import DAry
from dp_pipelines.collect.domain import Choices, NumberBins, NumberGrid
from dp_pipelines.collect.exp_bound import epsilon_of, exp_below, plain_text
from dp_pipelines.collect.hadamard import HadamardResponse
from dp_pipelines.collect.local_hashing import LocalHashing
from dp_pipelines.collect.one_bit import OneBit
from dp_pipelines.collect.piecewise import Piecewise
from dp_pipelines.collect.randomizer import Randomizer
from dp_pipelines.collect.unary import UnaryEncoding
from dp_pipelines.errors import RequestError, nearest

FORMAT = "dp_pipelines.question/1"

FOR_CHOICES: dict[str, type[Randomizer]] = {
    kind.name: kind for kind in (DAry, UnaryEncoding, LocalHashing, HadamardResponse)
}
FOR_NUMBERS: dict[str, type[Randomizer]] = {kind.name: kind for kind in (OneBit, Piecewise)}

MOST_BITS_OF_REPORT = 128
"""Values up to which `auto` takes unary encoding, whose reports have a bit for each."""

MOST_TESTS = 10_000
"""Values up to which `auto` takes local hashing, for which a server tests each value for each report."""


Domain = Choices | NumberBins | NumberGrid


@dataclass(frozen=True)
class Question:
    """One question, as devices and server know it.

    Args:
        name: what it is called, as stages are.
        domain: what it may be answered with: `Choices`, `NumberBins` or, for a mean, `NumberGrid`.
        epsilon: the guarantee of one answer.
        mechanism: d_ary, unary, local_hashing or hadamard for choices and bins; one_bit or piecewise for a grid; auto takes the
            one with the least variance that a server can also count.

    >>> question = Question("visited", Choices(("bakery", "dairy", "neither")), epsilon=1)
    >>> question.mechanism, len(question.report("dairy")["report"])
    ('d_ary', 1)
    >>> Question.from_json(question.to_json()) == question
    True
    """

    name: str
    domain: Domain
    _: KW_ONLY
    epsilon: Any
    mechanism: str = "auto"

    def __post_init__(self) -> None:
        checks.stage_name(self.name, "name")
        if not isinstance(self.domain, Domain):
            raise RequestError(field="domain", message="must be Choices(...), NumberBins(...) or NumberGrid(...)")
        object.__setattr__(self, "epsilon", epsilon_of(self.epsilon))
        if self.mechanism == "auto":
            object.__setattr__(self, "mechanism", recommended(self.domain, self.epsilon))
        if not isinstance(self.mechanism, str) or self.mechanism not in self._kinds:
            raise RequestError(
                field="mechanism",
                message=f"must be one of {', '.join(self._kinds)}",
                hint=nearest(str(self.mechanism), self._kinds),
            )
        _ = self.randomizer

    @property
    def _kinds(self) -> dict[str, type[Randomizer]]:
        return FOR_NUMBERS if isinstance(self.domain, NumberGrid) else FOR_CHOICES

    @cached_property
    def randomizer(self) -> Randomizer:
        """The mechanism with its chances."""
        return self._kinds[self.mechanism](self.epsilon, self.domain.size)

    def report(self, value: Any) -> dict[str, Any]:
        """A fresh answer of one device.

        Two answers about the same value cost epsilon twice: `Memoised` keeps one.

        Args:
            value: the person's value.

        Returns:
            A dictionary for JSON: the question's name and the report's whole numbers.

        Raises:
            RequestError: the value is outside the domain, and the question has no `otherwise`.
        """
        return {
            "question": self.name,
            "report": list(self.randomizer.respond(self.domain.index_of(value), SystemCoins())),
        }

    def to_json(self) -> str:
        """The document for devices and server."""
        document = {
            "format": FORMAT,
            "name": self.name,
            **self.domain.to_json(),
            "epsilon": plain_text(self.epsilon),
            "mechanism": self.mechanism,
            "bits": self.randomizer.bits,
            "fields": list(self.randomizer.fields),
            "parameters": self.randomizer.parameters(),
        }
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Question":
        """The question of a document.

        Raises:
            RequestError: it is no such document, or its numbers are not those that follow from its epsilon and its values.
        """
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            raise RequestError(field="question", message="is not a JSON document") from None
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise RequestError(
                field="format", message=f"must be {FORMAT}", hint="write the file with Question.to_json()"
            )
        missing = [key for key in ("name", "epsilon", "mechanism") if key not in found]
        if missing:
            raise RequestError(field=missing[0], message="is missing", hint="write the file with Question.to_json()")
        if "values" in found:
            domain: Domain = Choices(found["values"], found.get("otherwise"))
        elif "edges" in found:
            domain = NumberBins(found["edges"], found.get("otherwise"))
        else:
            domain = NumberGrid(found.get("low"), found.get("high"), found.get("steps", 0), found.get("otherwise"))
        question = cls(found["name"], domain, epsilon=found["epsilon"], mechanism=found["mechanism"])
        right = json.loads(question.to_json())
        wrong = [key for key in sorted(right.keys() | found.keys()) if not _same(right, found, key)]
        if wrong:
            raise RequestError(
                field=wrong[0],
                message="is not what follows from the question's values, epsilon and mechanism",
                hint="write the file anew with Question.to_json(), and give it to all devices",
            )
        return question


def _same(right: Mapping[str, Any], document: Mapping[str, Any], key: str) -> bool:
    """Return True if two documents have the same text under a key."""
    # `==` would take true for 1, and `get` null for a missing key.
    return key in right and key in document and _text(right[key]) == _text(document[key])


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def recommended(domain: Domain, epsilon: Decimal) -> str:
    """The mechanism that `auto` takes, from public numbers.

    For choices, d-ary response has the least variance up to 3 e^epsilon + 2 values (Wang et al. 2017, section 4); for numbers,
    one bit has the smaller worst variance up to epsilon 1.29 (Wang et al. 2019, section 3.3).
    """
    if isinstance(domain, NumberGrid):
        return OneBit.name if epsilon <= Decimal("1.29") else Piecewise.name
    if domain.size < 3 * exp_below(epsilon) + 2:
        return DAry.name
    if domain.size <= MOST_BITS_OF_REPORT:
        return UnaryEncoding.name
    return LocalHashing.name if domain.size <= MOST_TESTS else HadamardResponse.name
