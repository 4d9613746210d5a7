"""A job means the same in whatever order its file lists what has no order: one plan, one run, one release.

In: made-up jobs, and one with most parts of an aggregate stage. Out: the same jobs with their mappings and public keys in another
order. Holds: digests agree with a cold cache and with one that the other order has filled; with seeded noise the releases agree.
Not covered: lists whose order says something, such as the columns of a partition or of a unit.
"""

import json
import pathlib
import random
from types import SimpleNamespace
from typing import Any

import hypothesis
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import strategies as st

from dp_pipelines import ContributionBounds, Count, Plan, PublicPartitions, Query, Sum
from dp_pipelines.errors import BudgetError, RequestError
from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.jobs.cli import main
from dp_pipelines.jobs.request import list_order
from dp_pipelines.jobs.request.request import Request, check
from dp_pipelines.jobs.run import build
from dp_pipelines.jobs.run import run as running
from dp_pipelines.jobs.spec import job_file
from dp_pipelines.noise.samplers import Sampler
from dp_pipelines.release import draw
from dp_pipelines.steps import draw_release
from tests.golden import jobs, rows
from tests.helpers import seeded
from tests.jobs.conftest import Shop, stage

UNORDERED = {keys[-1] for keys in list_order.WITHOUT_ORDER} - {"public"}
"""Keys of lists whose order means nothing."""


def reordered(content: Any, draws: random.Random, *, path: tuple[str, ...] = ()) -> Any:
    """The same content with mappings and the lists whose order means nothing in another order."""
    if isinstance(content, dict):
        items = [(key, reordered(value, draws, path=(*path, key))) for key, value in content.items()]
        return dict(draws.sample(items, len(items)))
    if isinstance(content, list):
        values = [reordered(value, draws, path=(*path, "")) for value in content]
        unordered = path[-2:] == ("partitions", "public") or path[-1] in UNORDERED or path[-2:-1] == ("pairs",)
        return draws.sample(values, len(values)) if unordered else values
    return content


def loaded(folder: pathlib.Path, name: str, content: dict[str, Any]) -> Request:
    path = folder / name
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return check(job_file.load(str(path)), [])


def identity(request: Request, plan: Plan) -> list[str]:
    """All by which a ledger or a folder knows a run again."""
    records = json.dumps([record.to_json() for record in plan.round(1).mechanisms])
    return [plan.digest, request.asked, request.content, running.identity_of(plan, request), records]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    place = tmp_path_factory.mktemp("ordered")
    rows.written(place)
    return place


@hypothesis.settings(max_examples=6)
@hypothesis.given(number=st.integers(0, jobs.ALL - 1), seed=st.integers(0, 2**32))
def test_a_job_in_another_order_is_the_same_plan_and_run_with_cold_and_warm_caches(
    folder: pathlib.Path, number: int, seed: int
) -> None:
    content = jobs.job(number)
    other = reordered(content, random.Random(seed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / f"cache-{number}-{seed}"))
        try:
            first, second = loaded(folder, "job.yaml", content), loaded(folder, "other.yaml", other)
            cold = [running.plan_of(request.file, request.stages) for request in (first, second)]
        except (RequestError, BudgetError):
            hypothesis.reject()
        running.cached_plan(first.file, first.stages)
        warm = running.cached_plan(second.file, second.stages)
    wanted = identity(first, cold[0])
    assert identity(second, cold[1]) == wanted
    assert identity(second, warm) == wanted


PARTS: dict[str, Any] = {
    "listed": stage(
        partitions={"public": [["p3", 1], ["p0", 2], ["p9", 1], ["p1", 3]]},
        partition_by=["product", "store"],
        kept={"share": 0.05},
        metrics={
            "spent": {"kind": "sum", "column": "price", "min_value": 0, "max_value": 20},
            "rows": {"kind": "count"},
            "low": {"kind": "mean", "column": "price", "min_value": 0, "max_value": 5},
            "people": {"kind": "privacy_id_count"},
            "chosen": {"kind": "sum", "column": "store", "min_value": "auto", "max_value": "auto", "within": [0, 64]},
            "bins": {"kind": "histogram", "column": "price", "edges": [0, 5, 10, 20]},
        },
    ),
    "levels": stage(
        partition_by=["product", "store"],
        rollup=[[], ["product"], ["product", "store"]],
        metrics={"z": {"kind": "count"}, "a": {"kind": "sum", "column": "price", "min_value": 0, "max_value": 20}},
    ),
    "best": stage(
        partitions={"public": [["p3"], ["p1"], ["p0"]]},
        partition_by=["product"],
        best={"k": 2, "by": "rows"},
        metrics={"rows": {"kind": "count"}},
    ),
}


def test_with_seeded_noise_both_orders_release_the_same_numbers_under_the_columns_of_each(
    shop: Shop, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seeded_words(stage_plan: Any) -> dict[str, Any]:
        source = seeded.words(int.from_bytes(stage_plan.name.encode()[:8], "little"))
        return {"samplers": lambda law: Sampler(law, source), "words": source}

    of_draw, of_levels = draw.draw_release, draw.draw_level
    monkeypatch.setattr(
        draw_release, "draw_release", lambda totals, of, permits: of_draw(totals, of, **seeded_words(of))
    )
    monkeypatch.setattr(draw, "draw_level", lambda totals, of, permits: of_levels(totals, of, **seeded_words(of)))
    monkeypatch.setattr(build, "entropy", SimpleNamespace(salt_number=lambda: 77))
    shop.write(stages=PARTS, budget={"epsilon": 30.0, "delta": 1e-6})
    content = yaml.safe_load(shop.job.read_text())
    tables = []
    for number in range(2):
        other = reordered(content, random.Random(number)) if number else content
        shop.job.write_text(yaml.safe_dump(other, sort_keys=False))
        running.run(job_file.load(str(shop.job)), str(tmp_path / f"out{number}"), ledger="none")
        tables.append({name: pq.read_table(tmp_path / f"out{number}" / f"{name}.parquet") for name in PARTS})
        own = list(other["stages"]["listed"]["metrics"])
        listed = tables[-1]["listed"].column_names
        assert [name for name in listed if name in own] == own
    assert tables[0]["listed"].column_names != tables[1]["listed"].column_names
    for name in PARTS:
        assert tables[1][name].select(tables[0][name].column_names).equals(tables[0][name]), name


def test_the_lines_of_a_public_file_may_come_in_another_order_in_the_second_week(
    shop: Shop, tmp_path: pathlib.Path
) -> None:
    """With a plan of its own the second week ended with exit 3, or was charged again."""
    listed = shop.folder / "keys.csv"
    shop.write(
        budget={"epsilon": 1.0, "delta": 1e-6, "runs": 2},
        stages={"weekly": stage(partitions={"public_file": "keys.csv"}, partition_by=["product"])},
    )
    plans = []
    for week, keys in enumerate((["p0", "p1", "p9"], ["p9", "p0", "p1"])):
        pyarrow.csv.write_csv(pa.table({"product": keys}), listed)
        out = tmp_path / f"out{week}"
        assert main.main(["run", str(shop.job), "--output", str(out), "--run-id", f"week{week}"]) == 0
        plans.append(json.loads((out / "manifest.json").read_text())["plan"])
    assert plans[0] == plans[1]
    again = tmp_path / "again"
    pyarrow.csv.write_csv(pa.table({"product": ["p1", "p9", "p0"]}), listed)
    assert main.main(["run", str(shop.job), "--output", str(again), "--run-id", "week0"]) == 0
    assert (again / "weekly.parquet").read_bytes() == (tmp_path / "out0" / "weekly.parquet").read_bytes()
    assert shop.charged() == 2


def test_the_same_run_id_with_metrics_in_another_order_gives_the_stored_release(
    shop: Shop, tmp_path: pathlib.Path
) -> None:
    metrics = {"rows": {"kind": "count"}, "people": {"kind": "privacy_id_count"}}
    for number, ordered in enumerate((metrics, dict(reversed(metrics.items())))):
        shop.write(stages={"weekly": stage(metrics=ordered)})
        out = str(tmp_path / f"out{number}")
        assert main.main(["run", str(shop.job), "--output", out, "--run-id", "r"]) == 0
    first, again = ((tmp_path / f"out{number}" / "weekly.parquet").read_bytes() for number in range(2))
    assert first == again
    assert shop.charged() == 1


def crossed(*pairs: list[str]) -> dict[str, Any]:
    """A train stage with pairs of features, in an order."""
    number = {"kind": "number", "min_value": 0, "max_value": 10, "bins": 3}
    categories = {"product": ["p0", "p1"], "note": ["7", "x"]}
    listed = {name: {"kind": "category", "categories": values} for name, values in categories.items()}
    label = {"kind": "number", "column": "price", "min_value": 0, "max_value": 20}
    features = {**listed, "store": number}
    return {"kind": "train", "label": label, "features": features, "fit": {"steps": 3}, "pairs": list(pairs)}


@pytest.mark.parametrize(
    "pairs", [(["note", "product"], ["product", "store"]), (["product", "store"], ["product", "note"])], ids=str
)
@pytest.mark.parametrize("named", [True, False])
def test_pairs_of_features_in_another_order_are_the_same_run_charged_once(
    shop: Shop, tmp_path: pathlib.Path, named: bool, pairs: tuple[list[str], ...]
) -> None:
    """It was refused under its run id, and without one it was charged again or refused by the budget."""
    given = ["--run-id", "r"] if named else []
    for number, listed in enumerate([(["product", "store"], ["note", "product"]), pairs]):
        shop.write(stages={"model": crossed(*listed)})
        assert main.main(["run", str(shop.job), "--output", str(tmp_path / f"out{number}"), *given]) == 0
    first, again = ((tmp_path / f"out{number}" / "model" / "model.safetensors").read_bytes() for number in range(2))
    assert first == again
    assert shop.charged() == 1


LISTS: dict[str, Any] = {
    "source": {"csv": "rows.csv", "types": {"customer": "int64", "product": "string"}, "nulls": ["", "-", "none"]},
    "lookup": [
        {"csv": "kinds.csv", "types": {"product": "string", "kind": "string"}, "nulls": ["?", ""], "on": ["product"]},
        {"csv": "both.csv", "types": dict.fromkeys(("kind", "product", "x"), "string"), "on": ["kind", "product"]},
    ],
    "outputs": {"files": ["jsonl", "csv"]},
    "stages": {"weekly": stage(metrics={"rows": {"kind": "count"}})},
}


@pytest.mark.parametrize("seed", range(3))
def test_lists_outside_of_stages_whose_order_means_nothing_leave_the_digests_as_they_are(shop: Shop, seed: int) -> None:
    (shop.folder / "rows.csv").write_text("customer,product\n1,p0\n2,-\n")
    (shop.folder / "kinds.csv").write_text("product,kind\np0,a\np1,?\n")
    (shop.folder / "both.csv").write_text("product,kind,x\np0,a,left\n")
    shop.write(**LISTS)
    content = yaml.safe_load(shop.job.read_text())
    other = reordered(content, random.Random(seed))
    assert other["outputs"] != content["outputs"] or seed
    requests = [loaded(shop.folder, f"{number}.yaml", job) for number, job in enumerate((content, other))]
    digests = [identity(request, running.plan_of(request.file, request.stages)) for request in requests]
    assert digests[0] == digests[1]


@pytest.mark.parametrize("keys", [20_000, 5])
def test_a_list_of_keys_long_or_short_has_one_digest_in_any_order(keys: int) -> None:
    listed = [(f"k{number % 500}", number) for number in range(keys)]
    digests = set()
    for seed in range(2):
        random.Random(seed).shuffle(listed)
        query = Query(
            privacy_unit="u",
            partition_by=["k", "n"],
            bounds=ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=1),
            metrics={"rows": Count()},
            partitions=PublicPartitions(keys=list(listed)),
        )
        digests.add(Plan(epsilon=1.0, stages={"all": query}).digest)
    assert len(digests) == 1


@pytest.mark.parametrize("values", [(1.5, 0.5), (True, False, None), (b"b", b"a"), ("b", 1), (None, "a")])
def test_keys_of_any_kind_have_one_order(values: tuple[Any, ...]) -> None:
    one, other = (PublicPartitions(keys=[(value,) for value in order]).columns for order in (values, values[::-1]))
    assert tuple(one) == tuple(other)
    assert one.digest == other.digest if "b" not in values or 1 not in values else True


def test_equal_queries_and_mappings_have_equal_hashes() -> None:
    """Caches within a process take one for the other."""
    one, other = {"a": 1, "b": 2}, {"b": 2, "a": 1}
    assert FrozenMapping(one) == FrozenMapping(other)
    assert hash(FrozenMapping(one)) == hash(FrozenMapping(other))
    metrics = {"n": Count(), "t": Sum("v", min_value=0, max_value=1)}
    bounds = ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=1)
    both = [
        Query(privacy_unit="u", partition_by="k", bounds=bounds, metrics=ordered)
        for ordered in (metrics, dict(reversed(metrics.items())))
    ]
    assert both[0] == both[1]
    assert hash(both[0]) == hash(both[1])
