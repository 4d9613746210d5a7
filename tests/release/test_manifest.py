"""The manifest: what it says of a run and of stages; its digests are those of the files, and each reader takes its own kind.

In: small files, plans, damaged manifests. Out: manifests. Holds: digests are recomputed with the standard library; a manifest may
lack or garble any part, and no reader fails. Not covered: what runs put into it (tests/jobs/run).
"""

import copy
import hashlib
import json
import pathlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dp_pipelines as dp
from dp_pipelines.release import manifest
from tests.helpers import rollups

STATEMENT = {
    "plan": "0f",
    "budget": {"epsilon": 2.0},
    "accounted": {"epsilon": 1.9},
    "accounted_one_run": {"epsilon": 0.5},
}
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def files(folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Two files of a release, by the names under which they are published."""
    (folder / "one").write_bytes(b"first")
    (folder / "two").write_bytes(b"second")
    return {"weekly.parquet": folder / "two", "bounds.json": folder / "one"}


def of_files(folder: pathlib.Path, **more: Any) -> dict[str, Any]:
    """A manifest."""
    records = [{"name": "rows", "scale": 2.0}]
    return manifest.manifest(
        statement=STATEMENT, mechanisms=records, privacy_unit="value of who", files=files(folder), **more
    )


def test_a_manifest_says_plan_budget_costs_mechanisms_and_the_unit_whose_rows_are_covered(
    tmp_path: pathlib.Path,
) -> None:
    made = of_files(tmp_path, run_id="r1", params={"week": "2026-W01"})
    assert {key: made[key] for key in STATEMENT} == STATEMENT
    assert (made["run_id"], made["params"]) == ("r1", {"week": "2026-W01"})
    assert made["mechanisms"] == [{"name": "rows", "scale": 2.0}]
    assert made["privacy_unit"] in made["guarantee"]
    assert made["ledger"] == {"head": None, "note": "not accounted across runs"}
    assert made["versions"]["manifest"] == made["format"]
    bare = of_files(tmp_path)
    assert (bare["run_id"], bare["params"]) == (None, {})
    json.dumps(made, allow_nan=False)
    for topic in ("timing", "raw inputs", "two privacy units", "public partition lists", "share no ledger"):
        assert [topic in line for line in made["not_covered"]].count(True) == 1


def test_the_digests_are_those_of_the_files_by_published_name(tmp_path: pathlib.Path) -> None:
    digest = {name: hashlib.sha256(content).hexdigest() for name, content in (("one", b"first"), ("two", b"second"))}
    found = of_files(tmp_path)["files"]
    assert found == {"bounds.json": {"sha256": digest["one"]}, "weekly.parquet": {"sha256": digest["two"]}}
    assert list(found) == sorted(found)


def test_a_folder_holds_a_release_only_while_every_listed_file_is_there_byte_for_byte(tmp_path: pathlib.Path) -> None:
    names = {path.name: path for path in files(tmp_path).values()}
    listed = manifest.digests(names)
    assert manifest.holds(tmp_path, listed)
    (tmp_path / "beside").write_text("no file of the release")
    assert manifest.holds(tmp_path, listed)
    assert manifest.holds(tmp_path, {"one": listed["one"]})
    (tmp_path / "two").write_bytes(b"secone")
    assert not manifest.holds(tmp_path, listed)
    assert manifest.holds(tmp_path, {"one": listed["one"]})
    (tmp_path / "two").unlink()
    assert not manifest.holds(tmp_path, listed)


def test_what_is_added_leaves_the_other_keys_as_they_are_and_what_is_not_covered_only_grows(
    tmp_path: pathlib.Path,
) -> None:
    made = of_files(tmp_path)
    before = copy.deepcopy(made)
    looks = [{"date": "1", "stage": "s", "words": "a look"}, {"date": "2", "stage": "t", "words": "a look"}]
    parties = {"parties": {"names": ["a", "b"], "words": ["they do not collude"]}}
    tuned, several = manifest.with_looks(made, looks), manifest.with_parties(made, parties)
    assert (tuned.pop("tuned"), several.pop("parties")) == (looks, parties["parties"])
    assert tuned.pop("not_covered") == [*before["not_covered"], "a look"]
    assert several.pop("not_covered") == [*before["not_covered"], "they do not collude"]
    assert (
        made
        == before
        == {**tuned, "not_covered": made["not_covered"]}
        == {**several, "not_covered": made["not_covered"]}
    )
    assert manifest.with_looks(made, []) == manifest.with_parties(made, {}) == made


def test_each_kind_of_manifest_is_taken_by_its_own_reader_alone(tmp_path: pathlib.Path) -> None:
    made = of_files(tmp_path)
    kinds = {
        manifest.read_manifest: made,
        manifest.read_made_up: manifest.of_made_up_rows(made, ["1,000 customers"]),
        manifest.read_estimates: {**made, "format": manifest.ESTIMATES_FORMAT},
    }
    for own, content in kinds.items():
        assert manifest.write_manifest(content, tmp_path) == tmp_path / "manifest.json"
        assert [read(tmp_path) for read in kinds] == [content if read is own else None for read in kinds]
    for damaged in ("{", "[1]", "3", json.dumps({}), ""):
        (tmp_path / "manifest.json").write_text(damaged)
        assert [read(str(tmp_path)) for read in kinds] == [None] * 3
    assert manifest.read_manifest(tmp_path / "nowhere") is None


def test_made_up_rows_have_no_guarantee_and_say_what_was_assumed(tmp_path: pathlib.Path) -> None:
    made = manifest.of_made_up_rows(of_files(tmp_path), ["1,000 customers"])
    assert made["guarantee"].startswith("none is needed")
    assert made["synthetic"]["assumed"] == ["1,000 customers"]
    assert made["not_covered"] == ["anything about real rows"]


@pytest.mark.parametrize(
    ("unit", "words"),
    [
        (["(row)"], "row"),
        (["who"], "value of who"),
        (["who", "week"], "combination of who and week"),
        (["who", "week", "shop"], "combination of who and week and shop"),
    ],
)
def test_a_unit_is_named_by_all_its_columns(unit: list[str], words: str) -> None:
    assert manifest.unit_in_words(unit) == words


def accounts(runs: Any, number: Any, spent: Any, asked: Any) -> dict[str, Any]:
    return {"ledger": {"runs": runs, "round": number, "so_far": {"epsilon": spent}}, "budget": {"epsilon": asked}}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (accounts(2, 1, 0.5, 2), "run 1 of 2; the runs so far used epsilon 0.5 of 2"),
        (accounts(3, 3, 0.43911, 1.0), "run 3 of 3; the runs so far used epsilon 0.4392 of 1"),
        (accounts(2, 1, 0, 2), "run 1 of 2; the runs so far used epsilon 0 of 2"),
        (accounts(1, 1, 0.5, 2), None),  # there is one run alone
        (accounts("2", 1, 0.5, 2), None),
        (accounts(2, None, 0.5, 2), None),
        (accounts(2, 1, None, 2), None),
        (accounts(2, 1, 0.5, None), None),
        (accounts(2, 1, -0.5, 2), None),
        (accounts(2, 1, 0.5, 1e300), None),
        (accounts(2, 1, float("nan"), 2), None),
        ({"ledger": {"runs": 2, "round": 1, "so_far": 0.5}, "budget": {"epsilon": 2.0}}, None),
        ({"ledger": [2], "budget": {"epsilon": 2.0}}, None),
        ({"ledger": accounts(2, 1, 0.5, 2)["ledger"], "budget": [2.0]}, None),
        ({"ledger": None, "budget": None}, None),
    ],
)
def test_what_was_spent_so_far_is_said_of_plans_of_several_runs_whose_ledger_knows_it(
    content: dict[str, Any], words: str | None
) -> None:
    assert manifest.spent_so_far(content) == words


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(("ledger", "budget"), ANYTHING)), ANYTHING, ANYTHING)
def test_no_manifest_is_too_odd_to_be_asked_what_was_spent(content: dict[str, Any], spent: Any, number: Any) -> None:
    for one in (content, accounts(2, number, spent, 1.0), accounts(number, 1, 0.5, spent)):
        said = manifest.spent_so_far(one)
        assert said is None or said.startswith("run ")


def described(**asked: Any) -> dict[str, Any]:
    """What readers learn of a stage."""
    declared: dict[str, Any] = {
        "privacy_unit": "who",
        "partition_by": "key",
        "bounds": dp.ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=3),
        "partitions": dp.PublicPartitions(keys=[("a",), ("b",)]),
    }
    (found,) = manifest.stages_to_json(
        dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": dp.Query(**declared | asked)}).stages
    )
    return found


def test_a_stage_is_described_by_its_keys_and_metrics_with_kinds_ranges_and_what_they_declare() -> None:
    mean = dp.Mean("paid", min_value=2, max_value=10)
    found = described(metrics={"basket": mean, "orders": dp.Count(), "bins": dp.Histogram("paid", edges=[0, 1, 2])})
    assert (found["name"], found["partition_by"]) == ("s", ["key"])
    assert "share" not in found
    assert "top" not in found
    assert list(found["metrics"]) == ["basket", "orders", "bins"]
    kinds = {name: entry["kind"] for name, entry in found["metrics"].items()}
    assert kinds == {"basket": "mean", "orders": "count", "bins": "histogram"}
    assert {name: entry.get("range") for name, entry in found["metrics"].items()} == {
        "basket": [2.0, 10.0], "orders": None, "bins": None,
    }  # fmt: skip
    assert {name: entry.get("edges") for name, entry in found["metrics"].items()} == {
        "basket": None, "orders": None, "bins": [0.0, 1.0, 2.0],
    }  # fmt: skip


def test_a_shrunk_mean_has_its_raw_one_beside_it_that_is_not_said_to_be_shrunk() -> None:
    shrunk = dp.Mean("paid", min_value=2, max_value=10, shrink=True)
    found = described(metrics={"basket": shrunk, "orders": dp.Count()})["metrics"]
    assert set(found) == {"basket", "basket_raw", "orders"}
    assert found["basket_raw"].pop("raw_of") == "basket"
    assert found["basket"].pop("shrunk") is True
    assert found["basket"] == found["basket_raw"]
    assert found["basket"]["range"] == [2.0, 10.0]


def test_the_largest_partitions_are_said_to_be_chosen() -> None:
    found = described(metrics={"orders": dp.Count()}, top=dp.Top(k=1, by="orders"))
    assert found["top"] == {"k": 1, "by": "orders"}


def test_of_a_rollup_each_metric_says_how_it_adds_up_and_has_the_number_as_it_was_drawn() -> None:
    metrics = {"rows": dp.Count(), "people": dp.PrivacyIdCount(), "typical": dp.Mean("paid", min_value=-1, max_value=5)}
    (found,) = manifest.stages_to_json({"weekly": rollups.stage_of(metrics, rollups.keys_of())})
    for name, metric in metrics.items():
        entry, raw = found["metrics"][name], found["metrics"][f"{name}_raw"]
        assert entry["rolled_up"] == raw["rolled_up"] == metric.rolls_up
        assert raw["raw_of"] == name
        assert "raw_of" not in entry
        assert entry["kind"] == raw["kind"]
        assert entry.get("range") == raw.get("range") == ([-1.0, 5.0] if name == "typical" else None)
    assert {metric.rolls_up for metric in metrics.values()} > {"sum"}
