"""The reference of job files: an entry for each key of the schema, with type, default, meaning and example.

In: the schema and the page that docs/job_file_keys.py makes of it. Out: missing entries. Holds: names in links are unique, links
lead to entries, examples are the YAML that they show, code fits the page. Not covered: how Sphinx shows it (test_site).
"""

import importlib.util
import json
import re
import types
from typing import Any

import pytest

from dp_pipelines.jobs.spec import yaml_lines
from tests.helpers.job_schema import SCHEMA
from tests.helpers.source import ROOT


def extension() -> types.ModuleType:
    """What Sphinx loads from docs/."""
    spec = importlib.util.spec_from_file_location("job_file_keys", ROOT / "docs" / "job_file_keys.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


KEYS = extension()
PAGE = KEYS.page(SCHEMA)
ENTRY = re.compile(
    r"^\[\*\*`(?P<key>\w+)`\*\*\]\{#(?P<anchor>[\w-]+)\} · (?P<type>.+) · (?P<asked>required|optional|default `.+`)\n"
    r": (?P<meaning>.{8,}\.)\n\n  `(?P<example>.+)`$",
    re.MULTILINE,
)
ENTRIES = list(ENTRY.finditer(PAGE))


def keys_of(schema: dict[str, Any]) -> list[str]:
    """The keys of all parts of a job, one for each part that has it."""
    return sorted(key for part in KEYS.parts(schema) for key in part.schema["properties"])


def test_every_key_has_one_entry_with_type_default_meaning_and_example() -> None:
    assert sorted(entry["key"] for entry in ENTRIES) == keys_of(SCHEMA)
    assert len(ENTRIES) > 180


def test_a_new_key_is_on_the_page_at_once_and_one_without_an_example_is_found() -> None:
    new = json.loads(json.dumps(SCHEMA))
    new["$defs"]["Bounds"]["properties"]["max_days"] = {"type": "integer", "minimum": 1, "description": "Days kept."}
    made = KEYS.page(new)
    assert "[**`max_days`**]{#bounds-max_days} · whole number from 1 · optional\n: Days kept." in made
    assert sorted(entry["key"] for entry in ENTRY.finditer(made)) != keys_of(new)


def test_names_in_links_are_unique_and_links_lead_to_them() -> None:
    anchors = [entry["anchor"] for entry in ENTRIES]
    headings = [re.sub(r"\W+", "-", title.lower()) for title in re.findall(r"^##+ (.+)$", PAGE, re.MULTILINE)]
    named = [*anchors, *headings, *re.findall(r"^\((\w+)\)=$", PAGE, re.MULTILINE)]
    assert sorted(named) == sorted(set(named))
    assert set(re.findall(r"\]\(#([\w-]+)\)", PAGE)) - set(named) == set()


def test_a_required_key_says_so_and_another_one_its_default() -> None:
    shown = {entry["anchor"]: (entry["type"], entry["asked"]) for entry in ENTRIES}
    assert shown["budget-runs"] == ("whole number from 1 to 1,000,000", "default `1`")
    assert shown["budget-epsilon"] == ("number above 0", "required")
    assert shown["job-where"] == ("text", "optional")
    assert shown["model-mlp-hidden"] == ("list of whole numbers", "default `[64]`")
    assert shown["sum-max_value"][0] == "number, `auto` or [Bound by partition](#bound-by-partition)"


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["anchor"])
def test_an_example_is_yaml_of_one_line_for_its_key(entry: re.Match[str]) -> None:
    assert list(yaml_lines.parse(entry["example"], "example").data) == [entry["key"]]


def test_code_fits_the_page() -> None:
    blocks = re.findall(r"^```yaml\n(.+?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert blocks
    assert [line for block in blocks for line in block.splitlines() if len(line) > KEYS.WIDTH] == []


def test_the_page_has_the_place_of_the_entries() -> None:
    source = [(ROOT / "docs" / f"{KEYS.PAGE}.md").read_text()]
    KEYS.into_page(None, KEYS.PAGE, source)
    assert "### bounds" in source[0]
