"""A release of each form is, under a fixed seed, what it was: rows, manifests, models and pages.

In: the texts in `releases/`. Out: a failing test that names the form and shows the lines that differ. Holds: all forms run in
this process one after the other, but for several organisations; nothing of the product is replaced but the source of words.
Not covered: other engines (tests/engines), ledgers and crashes (tests/jobs/run).
"""

import difflib
import json
import pathlib

import pytest

from tests.baseline import forms, releases
from tests.golden.answers import call
from tests.helpers.extension_folders import needs

OF_EXTENSIONS = {releases.COLLECTED: "local_dp", releases.TOGETHER: "two_organisations"}
"""The extension that a form needs."""


@pytest.mark.parametrize(
    "form",
    [pytest.param(form, marks=[needs(OF_EXTENSIONS[form])] if form in OF_EXTENSIONS else []) for form in releases.ALL],
)
def test_a_release_under_a_fixed_seed_is_what_it_was(form: str, tmp_path: pathlib.Path) -> None:
    written, now = releases.file_of(form).read_text(), releases.released(form, tmp_path)
    different = "\n".join(
        difflib.unified_diff(written.splitlines(), now.splitlines(), "committed", "now", lineterm="", n=0)
    )
    assert not different, f"the release of {form!r} changed:\n{different}"


@needs("local_dp")
def test_every_kind_of_stage_and_model_and_every_strategy_has_a_form() -> None:
    schema = json.loads(call("schema").out)["$defs"]
    kinds = {
        name: one["properties"]["kind"].get("const") for name, one in schema.items() if "kind" in one["properties"]
    }
    stages = {
        kind for name, kind in kinds.items() if name.startswith("Stage") or name.endswith(("Stage", "StageModel"))
    }
    models = {kinds[name] for name in ("Linear", "Network", "Jax")}
    strategies = schema["Private"]["properties"]["strategy"]["enum"]
    assert stages >= {"aggregate", "train", "federate", "pate", "collected"}
    assert len(models) == 3
    jobs = json.dumps(forms.JOBS)
    used = {each["kind"] for job in forms.JOBS.values() for each in job["stages"].values()} | {releases.COLLECTED}
    assert stages == used
    assert [one for one in models - {"linear"} if f'"kind": "{one}"' not in jobs] == []
    assert [one for one in strategies if f"strategy {one}" not in forms.JOBS] == []
    assert sorted(path.stem for path in releases.HERE.iterdir()) == sorted(
        releases.file_of(f).stem for f in releases.ALL
    )
