"""Every metric of the registry, and one that is defined in a file of its own, on all ways from a job file to a report.

In: one example of each kind. Out: failures where a metric has no words, no plot, no model. Holds: a metric that is added is in
the lists here, or a test says that it is missing. Not covered: what its numbers are; tests/metrics has that.
"""

import json
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dp_pipelines as dp
from dp_pipelines.jobs.spec import declared, metric_models
from dp_pipelines.metrics import registry
from dp_pipelines.metrics.base import Metric
from dp_pipelines.release import manifest
from tests.jobs.conftest import Said, Shop, stage
from tests.report.page import Page

Call = Callable[..., Said]

RANGE = {"min_value": 0, "max_value": 20}
EXAMPLES: dict[str, dict[str, Any]] = {
    "count": {},
    "privacy_id_count": {},
    "distinct_count": {"column": "note"},
    "geometric_mean": {"column": "price", "min_value": 0.5, "max_value": 20},
    "histogram": {"column": "price", "edges": [0, 5, 20]},
    "quantile": {"column": "price", "quantile": 0.5, "candidates": [1.5, 5, 10, 15]},
    "quantiles": {"column": "price", "quantiles": [0.1, 0.9], **RANGE},
    "median": {"column": "price", **RANGE},
    "min": {"column": "price", **RANGE},
    "max": {"column": "price", **RANGE},
    "sum": {"column": "price", **RANGE},
    "mean": {"column": "price", **RANGE},
    "variance": {"column": "price", **RANGE},
    "vector_sum": {"column": "taste", "size": 2, "max_norm": 1},
    "second_moments": {"columns": ["price", "store"], "max_norm": 20},
}

OWN = '''
"""How many rows each privacy unit has."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from dp_pipelines.kernels.statistics import Statistic, ValueSum
from dp_pipelines.metrics.base import ROWS, UNITS, Basis, Metric, Noisy, ReleasedValues


@dataclasses.dataclass(frozen=True)
class RowsPerUnit(Metric):
    """How many rows a privacy unit has in a partition, on average.

    Args:
        most: what is published is not above it.
    """

    kind, words = "rows_per_unit", "how many rows a unit has on average"
    stddev_is_public = False
    most: float = dataclasses.field(default=100.0, kw_only=True)

    def statistics(self, basis: Basis) -> tuple[Statistic, ...]:
        return (ROWS, UNITS)

    def finish(self, noisy: Mapping[Statistic, Noisy], basis: Basis) -> ReleasedValues:
        rows, units = noisy[ROWS], noisy[UNITS]
        least = np.maximum(units.values, 1.0)
        mean = np.clip(rows.values / least, 1.0, self.most)
        return mean, np.hypot(rows.stddev, mean * units.stddev) / least
'''

OWN_OF_A_COLUMN = '''
"""The mean of the square roots of a column."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from dp_pipelines.kernels.lattice import Floats, Lattice
from dp_pipelines.kernels.statistics import Statistic, ValueSum
from dp_pipelines.metrics.base import ROWS, Basis, Metric, Noisy, ReleasedValues


def roots(values: Floats) -> Floats:
    return np.sqrt(np.maximum(values, 0.0))


@dataclasses.dataclass(frozen=True)
class MeanRoot(Metric):
    """The mean of square roots.

    Args:
        column: whose roots are averaged.
        most: values above it count as it.
    """

    kind, words = "mean_root", "the mean of square roots"
    stddev_is_public = False
    column: str
    most: float = dataclasses.field(kw_only=True)

    def statistics(self, basis: Basis) -> tuple[Statistic, ...]:
        lattice = Lattice.for_values(0.0, self.most, centred=True, through=roots)
        return ValueSum(column=self.column, lattice=lattice), ROWS

    def finish(self, noisy: Mapping[Statistic, Noisy], basis: Basis) -> ReleasedValues:
        of_roots, _ = self.statistics(basis)
        rows, middle = np.maximum(noisy[ROWS].values, 1.0), of_roots.lattice.offset
        mean = np.clip(middle + noisy[of_roots].values / rows, 0.0, 2 * middle)
        return mean, np.hypot(noisy[of_roots].stddev, (mean - middle) * noisy[ROWS].stddev) / rows
'''

WITH_OWN = """
import sys
import dp_pipelines.metrics
dp_pipelines.metrics.__path__.append(sys.argv[1])
from dp_pipelines.audit import audit
from dp_pipelines.jobs.cli.main import main
audit.audit.__kwdefaults__["false_alarms"] = 1e-10
sys.exit(main(sys.argv[2:]))
"""


def tasted(shop: Shop) -> None:
    """Give the shop's rows a column of lists too."""
    for path in (shop.folder / "data").glob("*.parquet"):
        table = pyarrow.parquet.read_table(path)
        taste = pyarrow.array([[0.5, 0.25]] * table.num_rows)
        pyarrow.parquet.write_table(table.append_column("taste", taste), path)


def example(kind: str) -> dict[str, Any]:
    """A metric as a job file has it."""
    return {"kind": kind, **EXAMPLES[kind]}


def asked(page: Page, words: str) -> bool:
    return words in " ".join(page.words.split())


def test_each_has_an_example_words_and_a_name_in_the_library() -> None:
    assert set(EXAMPLES) == set(registry.metrics())
    for kind, metric in registry.metrics().items():
        assert metric.words, f"{kind} has no words for the readers of a report"
        assert getattr(dp, metric.__name__) is metric, "what job files know, dp_pipelines exports"
        assert metric.many == (metric.shown_as != "number")
        assert all(name in [field.name for field in declared.fields(metric)] or metric.many is False
                   for name in metric.declared)  # fmt: skip


@pytest.mark.parametrize("kind", EXAMPLES)
def test_each_field_of_each_is_described_and_editors_are_told(kind: str) -> None:
    schema = metric_models.MODELS[kind].model_json_schema()
    assert schema["properties"]["kind"]["const"] == kind
    assert schema["description"].endswith(".")
    for field in declared.fields(registry.metrics()[kind]):
        assert field.description.endswith("."), f"{kind}.{field.name} is not in the docstring"
        offered = field.name != "stddev" or registry.metrics()[kind].takes_stddev
        assert (field.name in schema["properties"]) == offered


@pytest.mark.parametrize("kind", EXAMPLES)
def test_what_each_tells_of_itself_in_a_job_file_is_that_metric(kind: str) -> None:
    metric = metric_models.MODELS[kind].model_validate(example(kind)).build()
    assert metric_models.MODELS[kind].model_validate(json.loads(json.dumps(
        metric_models.described("m", metric)))).build() == metric  # fmt: skip


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("auto"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(kind=st.sampled_from(sorted(EXAMPLES)), data=st.data())
def test_whatever_stands_in_a_field_is_taken_or_refused_as_a_wrong_request(kind: str, data: st.DataObject) -> None:
    metric = registry.metrics()[kind]
    name = data.draw(st.sampled_from([field.name for field in declared.fields(metric)]))
    try:
        made = metric(**{**EXAMPLES[kind], name: data.draw(ANYTHING)})
    except dp.RequestError:
        return
    assert isinstance(made, Metric)


def test_a_metric_of_ones_own_is_not_taken_for_the_one_it_inherits_from() -> None:
    class RoundedSum(dp.Sum):
        """Another number than the sum."""

    own = RoundedSum("price", min_value=0, max_value=20)
    query = dp.Query(
        privacy_unit="u",
        partition_by="k",
        metrics={"own": own},
        bounds=dp.ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1),
    )
    plan = dp.Plan(epsilon=1.0, delta=1e-6, stages={"s": query})
    (described,) = manifest.stages_to_json(plan.stages)
    assert described["metrics"]["own"]["kind"] == "rounded_sum"
    assert registry.of_kind("rounded_sum") is None


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ({"kind": "histogram", "column": "price", "edges": {"a": 1}}, "must be a list"),
        ({"kind": "histogram", "column": "price", "edges": "0, 1"}, "must be a list"),
        ({"kind": "quantiles", "column": "price", "quantiles": 0.5, **RANGE}, "must be a list"),
        ({"kind": "second_moments", "columns": ["price"], "bounds": [0, 1]}, "must be a mapping of names"),
    ],
)
def test_what_is_no_list_is_told_in_plain_words(shop: Shop, call: Call, metric: dict[str, Any], said: str) -> None:
    told = call("plan", shop.write(stages={"weekly": stage(metrics={"m": metric})}))
    assert told.code == 2
    assert said in told.err


@pytest.mark.usefixtures("rare_false_alarms")
def test_each_is_planned_run_told_in_words_and_audited(shop: Shop, call: Call) -> None:
    tasted(shop)
    metrics = {f"the_{kind}": example(kind) for kind in EXAMPLES}
    job = shop.write(stages={"weekly": stage(metrics=metrics)}, budget={"epsilon": 39.0, "delta": 1e-5})
    said = call("plan", job)
    assert said.code == 0, said.err
    assert all(name in said.out for name in metrics)
    said = call("run", job, "--output", shop.folder / "out")
    assert (said.code, said.err) == (0, "")
    (described,) = json.loads((shop.folder / "out" / "manifest.json").read_text())["stages"]
    assert {name: entry["kind"] for name, entry in described["metrics"].items()} == {f"the_{k}": k for k in EXAMPLES}
    page = Page((shop.folder / "out" / "report.html").read_text())
    table = pyarrow.parquet.read_table(shop.folder / "out" / "weekly.parquet")
    for kind, metric in registry.metrics().items():
        # Up to where the name of the unit or of a column stands.
        assert asked(page, f"the_{kind} : {metric.words.partition('{')[0].partition(' a column')[0].rstrip()}"), kind
        entry = described["metrics"][f"the_{kind}"]
        assert (metric.judged is None) == ("verdict" not in entry), kind
        if "verdict" in entry:
            words = " ".join(entry["verdict"]["words"].split())
            falls_short = entry["verdict"]["clear"] < 0.9 * entry["verdict"]["numbers"]
            assert asked(page, words) == falls_short, "said where not all is well"
            assert words in " ".join(said.out.split())
        if "range" in entry:
            low, high = entry["range"]
            assert (
                pc.max(
                    pc.list_flatten(table[f"the_{kind}_stddev"]) if metric.many else table[f"the_{kind}_stddev"]
                ).as_py()
                <= (high - low) / 2
            )
    said = call("audit", job, "--replays", "2000")
    assert said.code == 0, said.out + said.err


@pytest.mark.parametrize("kind", EXAMPLES)
def test_each_has_its_line_in_the_summary_and_its_plot_where_it_stands_alone(shop: Shop, call: Call, kind: str) -> None:
    tasted(shop)
    job = shop.write(stages={"weekly": stage(metrics={"only": example(kind)})}, budget={"epsilon": 39.0, "delta": 1e-5})
    said = call("run", job, "--output", shop.folder / "out")
    assert (said.code, said.err) == (0, "")
    assert "only" in said.out
    page = Page((shop.folder / "out" / "report.html").read_text())
    plots = [str(attributes.get("aria-label")) for tag, attributes in page.elements if tag == "svg"]
    assert any("only" in title for title in plots)


def test_a_quantile_that_comes_first_takes_no_plot_from_others(shop: Shop, call: Call) -> None:
    metrics = {"typical": example("quantile"), "orders": example("count")}
    weekly = stage(metrics=metrics, partition_by=["product", "store"])
    job = shop.write(stages={"weekly": weekly}, budget={"epsilon": 39.0, "delta": 1e-5})
    assert call("run", job, "--output", shop.folder / "out").code == 0
    page = Page((shop.folder / "out" / "report.html").read_text())
    plots = [str(attributes.get("aria-label")) for tag, attributes in page.elements if tag == "svg"]
    for name in metrics:
        assert any(title.startswith(f"{name} of ") for title in plots)
    assert "±" not in next(title for title in plots if title.startswith("typical of "))


def test_a_metric_is_one_file(shop: Shop) -> None:
    folder = shop.folder / "metrics"
    folder.mkdir()
    (folder / "rows_per_unit.py").write_text(OWN)
    (folder / "mean_root.py").write_text(OWN_OF_A_COLUMN)

    def call(*arguments: object) -> str:
        command = [sys.executable, "-c", WITH_OWN, folder, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=pathlib.Path.cwd())
        assert done.returncode == 0, done.stderr
        return done.stdout

    metrics = {
        "each": {"kind": "rows_per_unit", "most": 9},
        "root": {"kind": "mean_root", "column": "price", "most": 16},
    }
    job = shop.write(stages={"weekly": stage(metrics=metrics)})
    assert '"rows_per_unit"' in call("schema")
    assert "each" in call("plan", job)
    assert "each" in call("run", job, "--output", shop.folder / "out")
    table = pyarrow.parquet.read_table(shop.folder / "out" / "weekly.parquet")
    assert all(1 <= number <= 9 for number in table["each"].to_pylist())
    assert all(0 <= number <= 4 for number in table["root"].to_pylist())
    page = Page((shop.folder / "out" / "report.html").read_text())
    assert asked(page, "each : how many rows a unit has on average")
    assert any("The largest each: " in str(a.get("aria-label")) for tag, a in page.elements if tag == "svg")
    assert "agrees" in call("audit", job, "--replays", "2000")
