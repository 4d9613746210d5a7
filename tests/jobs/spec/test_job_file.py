"""Job files: broken ones beside the words that they are refused with, and what a good one means."""

import dataclasses
import json
import pathlib
from collections.abc import Iterator
from typing import Annotated, Any

import pyarrow as pa
import pytest
from pydantic import Field, ValidationError

from dp_pipelines import Count, Mean, PrivatePartitions, PublicPartitions, Sum, checks
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.request.queries import queries
from dp_pipelines.jobs.spec import declared, job_file, validation_errors
from dp_pipelines.jobs.spec.base_models import JobModel
from dp_pipelines.jobs.spec.job_file import load
from dp_pipelines.metrics import registry
from dp_pipelines.query.query import ContributionBounds, Query, Top
from dp_pipelines.query.train_model import Number, Steps, TrainModel
from tests.helpers.extension_folders import needs
from tests.jobs.conftest import Shop

GOLDEN = pathlib.Path(__file__).parent / "golden"
BROKEN = sorted(path for path in GOLDEN.iterdir() if path.suffix != ".txt")
NAMES_SOURCES = "two_sources"
"""The broken job whose words list all kinds of sources."""

GOOD = """
dataset: grocery
params: {week: {type: string}}
privacy_unit: CUSTOMER_ID
budget: {epsilon: 1, delta: 1e-6, runs: 52}
source: {parquet: "data/{week}/*.parquet"}
where: "AMOUNT > 0"
columns: {week: "date_trunc('week', TRANSACTION_DT)"}
lookup: {parquet: "stores.parquet", on: STORE}
expect: {users: 100, rows_per_partition: 200}
stages:
  weekly:
    kind: aggregate
    share: 0.5
    partition_by: [PRODUCT_SUBCLASS, week]
    bounds: {max_partitions_contributed: 16, max_contributions_per_partition: 2}
    partitions: {private: {strategy: laplace, min_users: 3}}
    metrics:
      orders: {kind: count, weight: 2}
      buyers: {kind: privacy_id_count}
      revenue: {kind: sum, column: SALES_PRICE, min_value: 0, max_value: 1000}
      clipped: {kind: sum, column: SALES_PRICE, min_sum_per_partition: 0, max_sum_per_partition: 1000}
      price: {kind: mean, column: SALES_PRICE, min_value: 0, max_value: 1000, nullable: false}
      spread: {kind: variance, column: SALES_PRICE, min_value: 0, max_value: 1000}
  regions:
    kind: aggregate
    partition_by: REGION
    bounds: {max_contributions: 8}
    partitions: {public: [[north], [south], [null]]}
    metrics: {orders: {kind: count}}
"""


def read(text: str, name: str = "job.yaml") -> job_file.JobFile:
    """A job from text."""
    return job_file.read(text, pathlib.Path(name), name)


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.stem, marks=[needs("lake")] if path.stem == NAMES_SOURCES else []) for path in BROKEN],
)
def test_a_broken_job_file_is_refused_with_the_words_beside_it(path: pathlib.Path) -> None:
    with pytest.raises(RequestError) as caught:
        queries(job_file.read(path.read_text(), path, path.name))
    assert f"{caught.value}\n" == path.with_suffix(".txt").read_text()


def test_every_broken_job_file_has_its_words_and_the_other_way_round() -> None:
    assert len(BROKEN) > 35
    assert {path.with_suffix(".txt") for path in BROKEN} == set(GOLDEN.glob("*.txt"))


def test_a_job_file_becomes_the_queries_that_it_describes() -> None:
    found = queries(read(GOOD))
    weekly, regions = found["weekly"], found["regions"]
    assert weekly.unit_columns == ("CUSTOMER_ID",)
    assert weekly.partition_columns == ("PRODUCT_SUBCLASS", "week")
    assert weekly.bounds.max_rows == 32
    assert weekly.partitions == PrivatePartitions(strategy="laplace", min_users=3)
    assert weekly.metrics["orders"] == Count(weight=2.0)
    assert weekly.metrics["revenue"] == Sum("SALES_PRICE", min_value=0, max_value=1000)
    assert weekly.metrics["price"] == Mean("SALES_PRICE", min_value=0, max_value=1000, nullable=False)
    assert regions.partitions == PublicPartitions(keys=[("north",), ("south",), (None,)])
    assert regions.bounds.max_contributions == 8


def test_yaml_and_json_say_the_same() -> None:
    job = read(GOOD).job
    assert read(json.dumps(job.model_dump(exclude_unset=True)), "job.json").job == job


def test_a_job_is_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        read(GOOD).job.budget.epsilon = 100.0


def test_the_schema_accepts_exactly_the_keys_that_the_loader_accepts() -> None:
    schema = job_file.Job.model_json_schema()
    assert schema["additionalProperties"] is False
    assert set(schema["required"]) == {"dataset", "privacy_unit", "budget", "stages"}
    assert set(schema["$defs"]["Stage"]["properties"]) == set(job_file.Stage.model_fields)
    metrics = schema["$defs"]["Stage"]["properties"]["metrics"]["additionalProperties"]
    assert set(metrics["discriminator"]["mapping"]) == {*registry.metrics(), "ratio", "expression"}


def described(schema: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Each field of a schema and of what is defined in it, with its description: its own, or that of what it refers to."""
    defined = schema.get("$defs", {})
    for place, part in {"job": schema, **defined}.items():
        for name, field in part.get("properties", {}).items():
            referred = defined.get(field.get("$ref", "").rpartition("/")[2], {})
            yield f"{place}.{name}", field.get("description") or referred.get("description", "")


def test_editors_are_told_what_each_field_of_a_job_file_means() -> None:
    found = dict(described(job_file.Job.model_json_schema()))
    assert len(found) > 120
    assert [name for name, words in found.items() if len(words) < 8 or not words.endswith(".")] == []


def test_a_field_without_a_description_is_found() -> None:
    class Bare(JobModel):
        said: Annotated[int, Field(description="A number of things.")]
        forgotten: int

    class Around(JobModel):
        inner: Annotated[Bare, Field(description="What it is about.")]

    found = dict(described(Around.model_json_schema()))
    assert found == {"job.inner": "What it is about.", "Bare.said": "A number of things.", "Bare.forgotten": ""}


NOT_IN_FILES = {
    *((Query, name) for name in ("group", "level", "windows", "parties", "privacy_unit")),
    (TrainModel, "privacy_unit"),
}
"""What is set by plans, what is for pipelines alone, and what stands once in a job and not in each stage."""


@pytest.mark.parametrize("library", [Query, ContributionBounds, PrivatePartitions, Top, TrainModel, Steps, Number])
def test_a_field_of_the_library_is_a_field_of_job_files_with_its_words(library: type) -> None:
    parts = [model for model in models() if model.library is library]
    said = {field: (model, key) for model in parts for key, field in model.declared.items()}
    for field in declared.fields(library):
        if (library, field.name) in NOT_IN_FILES and field.name not in said:
            continue
        model, key = said[field.name]
        if key in getattr(model.__base__, "model_fields", ()):  # job files say it in their own way
            continue
        schema = model.model_json_schema()
        assert schema["properties"][key]["description"] == field.description
        assert (key in schema.get("required", ())) == (field.default is dataclasses.MISSING)


def models() -> list[type[declared.DeclaredFields]]:
    """All that is made of dataclasses."""
    found, rest = [], [declared.DeclaredFields]
    while rest:
        model = rest.pop()
        rest += model.__subclasses__()
        found += [model] if hasattr(model, "library") else []
    return found


def test_a_field_that_the_library_gets_is_one_of_job_files_at_once() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class LaterBounds(ContributionBounds):
        """Bounds of a later version.

        Args:
            max_days: days of one unit that are kept.
        """

        max_days: Annotated[int, checks.Whole(low=1, high=366)] | None = None

    model = declared.model_of(declared.DeclaredModel, LaterBounds, name="LaterBoundsModel")
    said: dict[str, Any] = {"max_contributions": 3, "max_days": 7}
    assert model.model_validate(said).build() == LaterBounds(**said)
    assert declared.said(LaterBounds(**said)) == said
    shown = model.model_json_schema()["properties"]["max_days"]
    assert shown["description"] == "Days of one unit that are kept."
    assert shown["anyOf"][0] == {"type": "integer", "minimum": 1, "maximum": 366}
    with pytest.raises(ValidationError, match="must be a whole number from 1 to 366"):
        model.model_validate({**said, "max_days": 0})


def test_ranges_and_kinds_stand_in_the_schema() -> None:
    defined = job_file.Job.model_json_schema()["$defs"]
    assert defined["TopPartitions"]["properties"]["k"]["maximum"] == 2**31
    assert defined["FitModel"]["properties"]["momentum"]["minimum"] == 0
    bound = defined["Bounds"]["properties"]["max_partitions_contributed"]["anyOf"]
    assert [{key: one[key] for key in one if key != "type"} for one in bound] == [
        {"minimum": 1, "maximum": 2**24}, {"const": "auto"}, {},
    ]  # fmt: skip
    assert defined["TrainStage"]["properties"]["features"]["minProperties"] == 1
    assert set(defined["TrainStage"]["properties"]["model"]["discriminator"]["mapping"]) == {"jax", "linear", "mlp"}


def test_a_file_that_is_not_there_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(RequestError, match="cannot be read"):
        job_file.load(str(tmp_path / "none.yaml"))
    with pytest.raises(RequestError, match="cannot be read"):
        job_file.load(str(tmp_path))
    (tmp_path / "latin.yaml").write_bytes(b"dataset: \xff\n")
    with pytest.raises(RequestError, match="UTF-8"):
        job_file.load(str(tmp_path / "latin.yaml"))


def test_a_public_file_is_a_public_list(tmp_path: pathlib.Path) -> None:
    (tmp_path / "keys.csv").write_text("REGION,other\nnorth,1\nsouth,2\n")
    text = GOOD.replace("{public: [[north], [south], [null]]}", "{public_file: keys.csv}")
    job = job_file.read(text, tmp_path / "job.yaml", "job.yaml")
    assert queries(job)["regions"].partitions == PublicPartitions(keys=[("north",), ("south",)])


def test_several_errors_are_one_error_with_a_line_for_each() -> None:
    error = validation_errors.JobErrors(
        [RequestError(field="a", message="x"), RequestError(field="b", message="y", hint="z")]
    )
    assert str(error) == "a: x\nb: y; z"
    assert isinstance(error, RequestError)


@pytest.mark.parametrize(
    ("name", "hint"), [("amout", "did you mean 'Amount'?"), ("zzz", "columns: Amount, b"), ("B", "did you mean 'b'?")]
)
def test_the_nearest_name_is_offered(name: str, hint: str) -> None:
    assert validation_errors.nearest(name, ["Amount", "b"], "columns") == hint


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("AREA\nnorth\n", "must have exactly one column 'REGION'"),
        ("REGION\nnorth\nnorth\n", "lists a partition twice"),
        ("", "cannot be read as CSV"),
    ],
)
def test_a_public_file_that_is_no_list_of_partitions_is_refused(
    tmp_path: pathlib.Path, content: str, words: str
) -> None:
    (tmp_path / "keys.csv").write_text(content)
    text = GOOD.replace("{public: [[north], [south], [null]]}", "{public_file: keys.csv}")
    job = job_file.read(text, tmp_path / "job.yaml", "job.yaml")
    numbers = {name: pa.int64() for name in ("CUSTOMER_ID", "PRODUCT_SUBCLASS", "week", "SALES_PRICE")}
    with pytest.raises(RequestError, match=words) as caught:
        queries(job, dict.fromkeys(job.job.stages, pa.schema({**numbers, "REGION": pa.string()})))
    assert caught.value.field == "job.yaml:29: stages.regions.partitions.public_file"


def test_a_split_and_a_noise_level_are_part_of_a_job() -> None:
    text = GOOD.replace("runs: 52}", "runs: 52, split: exponential}").replace(
        "{kind: count, weight: 2}", "{kind: count, stddev: 25}"
    )
    file = read(text)
    assert file.job.budget.split == "exponential"
    assert read(GOOD).job.budget.split == "constant"
    assert queries(file)["weekly"].metrics["orders"] == Count(stddev=25)


@pytest.mark.parametrize(
    ("written", "instead", "words"),
    [
        ("runs: 52}", "runs: 52, split: falling}", r"^job\.yaml:5: budget\.split: "),
        ("price: {kind: mean,", "price: {kind: mean, stddev: 3,", r"^job\.yaml:23: .*price\.stddev: is not for Mean"),
        ("spread: {kind: variance,", "spread: {kind: variance, stddev: 3,", r"^job\.yaml:24: .*is not for Variance"),
        ("{kind: count, weight: 2}", "{kind: count, weight: 2, stddev: 3}", r"^job\.yaml:19: .*stands beside a weight"),
        ("{kind: count, weight: 2}", "{kind: count, stddev: -3}", r"^job\.yaml:19: .*orders\.stddev: "),
    ],
)
def test_a_split_or_a_noise_level_that_cannot_be_is_refused_with_its_line(
    written: str, instead: str, words: str
) -> None:
    assert written in GOOD
    with pytest.raises(RequestError, match=words):
        queries(read(GOOD.replace(written, instead)))


@pytest.mark.parametrize(
    ("look", "words"),
    [
        ({"stage": "a\x1b[2J", "date": "2026-01-05"}, "must not contain line breaks, control characters"),
        ({"stage": "weekly", "date": "2026-02-30"}, "must be a date"),
        ({"stage": "weekly", "date": "2026-13-01"}, "must be a date"),
    ],
)
def test_a_look_names_a_stage_in_plain_text_and_a_day_that_there_is(
    shop: Shop, look: dict[str, str], words: str
) -> None:
    shop.write(tuned=[{"stage": "weekly", "date": "2026-01-05"}])
    assert load(str(shop.job)).job.tuned is not None
    shop.write(tuned=[look])
    with pytest.raises(RequestError, match=words):
        load(str(shop.job))


@pytest.mark.parametrize(
    ("kind", "known"), [("averge", "mean"), ("users", "privacy_id_count"), ("Percentiles", "quantiles")]
)
def test_a_metric_by_the_name_that_it_has_elsewhere_is_told_its_name_here(kind: str, known: str) -> None:
    with pytest.raises(RequestError, match=f"must be one of count, .*; did you mean '{known}'?"):
        read(GOOD.replace("kind: mean", f"kind: {kind}"))


def test_a_key_of_stages_at_the_top_of_a_job_is_sent_into_a_stage() -> None:
    with pytest.raises(RequestError, match=r"kept: belongs into a stage; write it under stages: NAME: kept:"):
        job_file.read("dataset: a\nkept: {share: 0.1}\n", pathlib.Path("job.yaml"), "job.yaml")
