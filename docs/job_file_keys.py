"""The reference of job files: an entry for each key, made of the JSON schema when Sphinx reads `reference/job_file.md`.

In: the schema of job files, with its descriptions and examples. Out: Markdown in place of a marker on that page. Holds: each key
of each part has one entry: name, type, default, meaning, example; a new key is on the page as soon as job files take it. Not
covered: how parts work together, which docs/jobs.md tells.
"""

import dataclasses
import json
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from dp_pipelines.jobs.spec import example_parts, job_schemas

PAGE = "reference/job_file"
MARKER = "<!-- every key: made from `dp-pipelines schema` -->"

COLLECTED = "collected: "
"""Stands before the places of a job over reports of devices."""

CHAPTERS = (
    (
        COLLECTED,
        "A job over reports of devices",
        "Its stages are of kind `collected`; see [answers that never reach you in the clear](../collect.md).",
    ),
    ("stages.NAME.metrics", "Metrics", "What stands under `metrics` of a stage, by the name of the published column."),
    ("stages.NAME (train)", "A stage that trains a model", ""),
    (
        "stages.NAME (federate)",
        "A stage whose clients train a model",
        "All other keys are those of a stage that trains a model; see [federated rounds](../federate.md).",
    ),
    (
        "stages.NAME (pate)",
        "A stage whose teachers vote",
        "All other keys are those of a stage that trains a model; see [votes of teachers](../pate.md).",
    ),
    ("stages.NAME", "A stage that releases a table", ""),
    ("", "The job", ""),
)
"""Where parts stand, the most special first; what the page calls them, and what it says before them."""

WIDTH = 88
"""Characters of code that fit the page in a window of 1280 pixels."""


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a job file that has keys of its own.

    Args:
        place: where it stands, e.g. `stages.NAME.bounds`.
        schema: its JSON schema.
        model: the model that its examples are kept under.
    """

    place: str
    schema: dict[str, Any]
    model: str

    @property
    def kind(self) -> str:
        """What tells it apart from others in its place; "" where it is alone there."""
        kind: str = self.schema["properties"].get("kind", {}).get("const", "")
        return kind

    @property
    def title(self) -> str:
        """Its heading."""
        if self.model in WHOLE:
            return ""
        if "select" in self.schema["properties"]:
            return "select"
        if self.place.startswith("stages.NAME.metrics"):
            return self.kind or re.sub(r"(?<=[a-z])(?=[A-Z])", " ", self.schema["title"]).capitalize()
        key = self.place.removesuffix(".NAME").rpartition(".")[2].removeprefix(COLLECTED)
        if self.kind:
            return f"{key}: {self.kind}"
        if self.place.startswith("stages.NAME (federate)"):
            return f"{key} of rounds"
        if self.place.startswith("stages.NAME (pate)"):
            return f"{key} of votes"
        return f"{key} of reports" if self.place.startswith(COLLECTED) else key

    @property
    def chapter(self) -> str:
        """The heading above its own."""
        return next(title for place, title, _ in CHAPTERS if self.place.startswith(place))

    @property
    def anchor(self) -> str:
        """Its name in links, and the beginning of those of its keys."""
        return anchor(self.model, self.title)


OF_MODELS = ("train", "federate", "pate")
"""Kinds of stages that have a chapter of their own."""

WHOLE = {
    "Job": "job",
    "CollectedJob": "collected-job",
    "Stage": "stage",
    "TrainStage": "train",
    "FederateStage": "federate",
    "PateStage": "pate",
}
"""Parts of which each begins a chapter, and their names in links."""


def anchor(model: str, title: str) -> str:
    """The name of a part in links: a heading's own, as Sphinx makes it."""
    return WHOLE.get(model) or re.sub(r"\W+", "-", title.lower())


def parts(schema: dict[str, Any]) -> list[Part]:
    """All parts of a job file, each once, where it stands first."""
    found: dict[str, Part] = {}

    def look(held: dict[str, Any], place: str) -> None:
        if "$ref" in held:
            name = held["$ref"].rpartition("/")[2]
            add(schema["$defs"][name], name, place)
            return
        if "properties" in held:
            add(held, held["title"], place)
        for choice in (*held.get("anyOf", ()), *held.get("oneOf", ())):
            look(choice, place)
        if isinstance(held.get("items"), dict):
            look(held["items"], place)
        for named in (held.get("additionalProperties"), *held.get("patternProperties", {}).values()):
            if isinstance(named, dict):
                look(named, f"{place}.NAME")

    def add(part: dict[str, Any], name: str, place: str) -> None:
        if name in found:
            return
        # A chapter of its own for models: their parts stand where those of tables do.
        const = part["properties"].get("kind", {}).get("const")
        place = f"{place} ({const})" if const in OF_MODELS else place
        found[name] = Part(place, part, name)
        for key, held in part["properties"].items():
            look(held, f"{place}.{key}".removeprefix(".").replace(f"{COLLECTED}.", COLLECTED))

    add(schema["$defs"]["Job"], "Job", "")
    if "CollectedJob" in schema["$defs"]:
        add(schema["$defs"]["CollectedJob"], "CollectedJob", COLLECTED)
    return list(found.values())


def page(schema: dict[str, Any]) -> str:
    """The entries of all keys, as Markdown."""
    found = parts(schema)
    titles = {part.model: part.title or part.chapter.lower() for part in found}
    kinds = {
        f"`{part.model.removesuffix('Metric')}`": f"`{part.kind}`" for part in found if part.model.endswith("Metric")
    }
    lines: list[str] = []
    for _, chapter, words in sorted(CHAPTERS, key=lambda one: ORDER.index(one[1])):
        lines += [f"({part.anchor})=" for part in found if part.chapter == chapter and part.model in WHOLE]
        lines += [f"## {chapter}", "", words, ""]
        for part in (part for part in found if part.chapter == chapter):
            lines += entries(part, schema, titles)
    text = "\n".join(lines)
    # Descriptions are those of the library's classes, which job files call by their kind.
    return re.sub("|".join(map(re.escape, kinds)), lambda name: kinds[name[0]], text)


ORDER = (
    *("The job", "A stage that releases a table", "Metrics", "A stage that trains a model"),
    *("A stage whose clients train a model", "A stage whose teachers vote", "A job over reports of devices"),
)


def entries(part: Part, schema: dict[str, Any], titles: dict[str, str]) -> Iterator[str]:
    """A part: its heading, what it is, whole examples, and its keys."""
    if part.title:
        yield from (f"### {part.title}", "")
    own = re.sub(r" \((train|federate|pate)\)", "", part.place).removeprefix(COLLECTED)
    place = f"`{own}`: " if own else ""
    yield from (f"{place}{part.schema.get('description', '')}", "")
    yield from whole_examples(part)
    own = example_parts.of_keys(part.model)
    shown = own | {
        key: held["examples"][0]
        for key, held in part.schema["properties"].items()
        if key not in own and held.get("examples")
    }
    for key in sorted(part.schema["properties"], key=[*shown, *part.schema["properties"]].index):
        held = part.schema["properties"][key]
        asked = "required" if key in part.schema.get("required", ()) else default(held, schema)
        referred = schema["$defs"].get(held.get("$ref", "").rpartition("/")[2], {})
        yield f"[**`{key}`**]{{#{part.anchor}-{key}}} · {kind_of(held, schema, titles)} · {asked}"
        yield f": {held.get('description') or referred.get('description', '')}"
        yield from ("", f"  `{key}: {flow(shown[key])}`" if key in shown else "", "")


def whole_examples(part: Part) -> Iterator[str]:
    """Examples of the part as one would write them: short ones within the text, long ones as code."""
    for text in example_parts.PARTS.get(part.model, ()):
        written = textwrap.dedent(text).strip()
        if "\n" not in written:
            yield f"* `{written}`"
        elif not written.startswith("{"):
            yield from ("", "```yaml", *(line for long in written.splitlines() for line in broken(long)), "```", "")
    yield ""


def broken(line: str) -> list[str]:
    """A line of YAML, broken where it would not fit the page."""
    return textwrap.wrap(line, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def kind_of(held: dict[str, Any], schema: dict[str, Any], titles: dict[str, str]) -> str:
    """What may stand there, in words."""
    if "$ref" in held or "properties" in held:
        name = held["$ref"].rpartition("/")[2] if "$ref" in held else held["title"]
        return f"[{titles[name]}](#{anchor(name, titles[name])})"
    if "const" in held:
        return f"`{held['const']}`"
    if "enum" in held:
        return either([f"`{one}`" for one in held["enum"]])
    choices = [one for one in (*held.get("anyOf", ()), *held.get("oneOf", ())) if one.get("type") != "null"]
    if len(choices) > MOST_CHOICES:
        return "one of [the kinds below](#metrics)"
    if choices:
        return either([kind_of(one, schema, titles) for one in choices])
    if held.get("type") == "array":
        return "list of " + plural(kind_of(held["items"], schema, titles))
    if held.get("type") == "object":
        named = (held.get("additionalProperties"), *held.get("patternProperties", {}).values())
        inner = next(one for one in named if one)
        if inner is True:
            return "mapping"
        return "mapping of names to " + kind_of(inner, schema, titles)
    if isinstance(held.get("type"), list):
        return "plain value"
    return {"string": "text", "boolean": "`true` or `false`", "integer": "whole number", "number": "number"}[
        held["type"]
    ] + limits(held)


MOST_CHOICES = 4
"""Parts that an entry lists; of more, as of metrics, it names the chapter."""


def plural(words: str) -> str:
    """Several of what a type says.

    >>> plural("whole number")
    'whole numbers'
    """
    return re.sub(r"^(list|text|plain value|whole number|number)\b", r"\1s", words)


def limits(held: dict[str, Any]) -> str:
    """The range of a number, without what only keeps it from overflowing.

    >>> limits({"minimum": 0, "exclusiveMaximum": 1})
    ' from 0 to below 1'
    """
    low = next((f" {word} {amount(held[key])}" for key, word in LOW.items() if held.get(key, -1) >= 0), "")
    high = next((f"{word} {amount(held[key])}" for key, word in HIGH.items() if held.get(key, 1e30) < 1e20), "")
    return low + (" to " if low and high and not high.startswith("to") else " " if high else "") + high


def amount(number: float) -> str:
    """A limit as one reads it; the smallest ones only say that a number must not vanish.

    >>> amount(2**24), amount(1e-12), amount(0.5)
    ('16,777,216', '0', '0.5')
    """
    near = 0 if number < 1e-9 else number
    return f"{int(near):,}" if near == int(near) else f"{near:g}"


LOW = {"minimum": "from", "exclusiveMinimum": "above"}
HIGH = {"maximum": "to", "exclusiveMaximum": "below"}


def either(choices: list[str]) -> str:
    """One of several."""
    return choices[0] if len(choices) == 1 else ", ".join(choices[:-1]) + " or " + choices[-1]


def default(held: dict[str, Any], schema: dict[str, Any]) -> str:
    """What holds where the key is left out."""
    value = without_nulls(held.get("default"))
    if value in (None, [], {}):
        return "optional"
    referred = schema["$defs"].get(held.get("$ref", "").rpartition("/")[2])
    own = referred and {key: one["default"] for key, one in referred["properties"].items() if "default" in one}
    return "optional" if own is not None and value == without_nulls(own) else f"default `{flow(value)}`"


def without_nulls(value: Any) -> Any:
    """Plain data without keys that hold nothing."""
    if isinstance(value, dict):
        return {key: without_nulls(one) for key, one in value.items() if one is not None}
    return value


def flow(value: Any) -> str:
    """A value as one would write it on one line of YAML.

    >>> flow({"week": {"type": "date"}, "delta": 1e-6, "categories": ["a", "2026-01-05"]})
    '{week: {type: date}, delta: 1.0e-6, categories: [a, "2026-01-05"]}'
    """
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {flow(held)}" for key, held in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, float) and "e" in repr(value):
        digits, _, power = repr(value).partition("e")
        return f"{digits if '.' in digits else digits + '.0'}e{int(power)}"
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z_][\w. -]*", value):
        return value
    return json.dumps(value, ensure_ascii=False)


def into_page(app: Any, name: str, source: list[str]) -> None:
    """Put the entries in place of the marker."""
    if name == PAGE:
        source[0] = source[0].replace(MARKER, page(job_schemas.schema()))


def setup(app: Any) -> dict[str, bool]:
    """What Sphinx calls."""
    app.connect("source-read", into_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
