"""Stages of every metric of the registry are checked together.

In: one example of each kind. Out: the profile that `dp-pipelines check` writes.
"""

import json
from collections.abc import Callable

from tests.jobs.conftest import Said, Shop, stage
from tests.jobs.test_every_metric import EXAMPLES, example, tasted

Call = Callable[..., Said]


def test_all_are_checked_together(shop: Shop, call: Call) -> None:
    tasted(shop)
    stages = {kind: stage(metrics={"only": example(kind)}) for kind in EXAMPLES}
    said = call("check", shop.write(stages=stages), "--output", shop.folder / "checked")
    assert said.code == 0, said.err
    profile = json.loads((shop.folder / "checked" / "PRIVATE-check.json").read_text())
    clamped = {one["stage"] for one in profile["stages"] if one["clips"]}
    assert clamped == {
        kind for kind, fields in EXAMPLES.items() if {"min_value", "min_sum_per_partition"} & set(fields)
    }
