"""Beam YAML pipelines release what jobs release, in ten lines, without a service and without quoting a row.

In: the example, made-up rows in its data's layout. Out: releases, refusals. Holds: the commands of docs/beam_yaml.md run here.
"""

import datetime
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, Repeatedly
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.timestamp import Timestamp

from dp_pipelines import RequestError
from dp_pipelines.jobs.beam_yaml import run_pipeline, transforms
from dp_pipelines.jobs.cli import main
from dp_pipelines.jobs.request.request import check
from dp_pipelines.jobs.run import run
from dp_pipelines.jobs.spec import job_file
from dp_pipelines.noise import entropy
from dp_pipelines.transforms import FromRows
from dp_pipelines.transforms.rows.schema_rows import ToSchemaRows, arrow_schema
from tests.helpers import graph, quiet
from tests.helpers.source import ROOT

EXAMPLE = ROOT / "examples" / "beam_yaml"


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A folder with the example, and with rows in the layout of its data; some hundreds, made up."""
    made = np.random.default_rng(3)
    rows = 3000
    table = pa.table(
        {
            "TRANSACTION_DT": pa.array(np.datetime64("2000-11-06", "D") + made.integers(0, 14, rows)),
            "CUSTOMER_ID": pa.array([f"{n:08}" for n in made.integers(0, 800, rows)]),
            "PRODUCT_SUBCLASS": pa.array([f"1001{n:02}" for n in made.integers(0, 4, rows)]),
            "SALES_PRICE": pa.array(made.integers(5, 300, rows).astype(np.int32)),
        }
    )
    (tmp_path / "data" / "ta_feng").mkdir(parents=True)
    for number in range(2):
        pa.parquet.write_table(table[number * 1500 :][:1500], tmp_path / "data" / "ta_feng" / f"{number}.parquet")
    for name in ("weekly.yaml", "providers.yaml"):
        (tmp_path / name).write_text((EXAMPLE / name).read_text())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def demo_job(shop: Path) -> Path:
    """The demo's job over the shop's rows."""
    job = yaml.safe_load((ROOT / "examples" / "ta_feng" / "weekly.yaml").read_text())
    job["source"] = {"parquet": "data/ta_feng/*.parquet"}
    (shop / "job.yaml").write_text(yaml.safe_dump(job, sort_keys=False))
    return shop / "job.yaml"


def test_ten_lines_publish_the_report_of_the_demo(shop, monkeypatch):
    quiet.silence(monkeypatch)
    monkeypatch.setattr(entropy, "salt_number", lambda: 7)  # the same salt: both keep the same rows
    assert len((EXAMPLE / "weekly.yaml").read_text().splitlines()) == 10
    assert run_pipeline.main(["weekly.yaml"]) == 0
    assert main.main(["run", str(demo_job(shop)), "--output", "demo", "--ledger", "none"]) == 0
    ours, demo = (json.loads(Path(folder, "manifest.json").read_text()) for folder in ("out/weekly", "demo"))
    for key in ("plan", "budget", "accounted", "mechanisms", "privacy_unit", "stages"):
        assert ours[key] == demo[key], key
    published = pa.parquet.read_table("out/weekly/weekly.parquet")
    assert published.num_rows == 8
    assert published.equals(pa.parquet.read_table("demo/weekly.parquet"))
    report = Path("out/weekly/report.html").read_text()
    assert "CUSTOMER_ID" in report
    assert "not accounted across runs" in report.lower()
    assert "not accounted across runs" in Path("out/weekly/manifest.json").read_text()


@pytest.mark.slow
def test_beams_own_command_runs_the_example_without_a_service(shop):
    command = [
        sys.executable,
        "-m",
        "apache_beam.yaml.main",
        "--yaml_pipeline_file=weekly.yaml",
        "--runner=FnApiRunner",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in Path("out/weekly").iterdir()) == [
        "manifest.json",
        "report.html",
        "weekly.parquet",
    ]


def test_nothing_is_printed_by_a_run(shop, capfd):
    assert run_pipeline.main(["weekly.yaml"]) == 0
    assert capfd.readouterr() == ("", "")


ROWS = [{"customer": f"c{n % 400}", "region": ["north", "south"][n % 2], "paid": float(n % 7)} for n in range(1200)]
BOUNDS = {"max_partitions_contributed": 2, "max_contributions_per_partition": 3}
SETTINGS = {
    "epsilon": 20.0, "delta": 1e-6, "ledger": "none", "privacy_unit": "customer", "partition_by": "region", "bounds": BOUNDS,
    "metrics": {"orders": {"kind": "count"}, "paid": {"kind": "sum", "column": "paid", "min_value": 0, "max_value": 6}},
}  # fmt: skip


def rows(pipeline):
    """Rows with a schema."""
    typed = row_of(customer=str, region=str, paid=float)
    return pipeline | beam.Create(ROWS) | beam.Map(lambda row: beam.Row(**row)).with_output_types(typed)


def row_of(**fields):
    """A row type."""
    return beam.typehints.row_type.RowTypeConstraint.from_fields(list(fields.items()))


def test_rows_come_in_and_released_rows_go_out(monkeypatch):
    quiet.silence(monkeypatch)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        released = rows(pipeline) | transforms.DpAggregate(**SETTINGS)
        assert arrow_schema(released.element_type)[0].names == [
            "region",
            "orders",
            "orders_stddev",
            "paid",
            "paid_stddev",
        ]
        rounded = released | beam.Map(
            lambda row: (row.region, round(row.orders), row.orders_stddev > 0, round(row.paid, -2))
        )
        of_region = [sum(row["paid"] for row in ROWS if row["region"] == name) for name in ("north", "south")]
        expected = [("north", 600, True, round(of_region[0], -2)), ("south", 600, True, round(of_region[1], -2))]
        assert_that(rounded, equal_to(expected))


def test_no_step_pickles_its_elements():
    pipeline = beam.Pipeline(runner=FnApiRunner())
    made = rows(pipeline)
    before = graph.pickled_collections(pipeline)
    _ = made | transforms.DpAggregate(**SETTINGS)
    assert graph.pickled_collections(pipeline) == before


def test_what_goes_on_is_what_was_published(tmp_path):
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        released = rows(pipeline) | transforms.DpAggregate(**SETTINGS, output=str(tmp_path / "out"), name="regions")
        _ = released | beam.Map(lambda row: json.dumps(row._asdict())) | beam.io.WriteToText(str(tmp_path / "rows"))
    table = pa.parquet.read_table(tmp_path / "out" / "regions.parquet")
    written = [json.loads(line) for path in tmp_path.glob("rows*") for line in path.read_text().splitlines()]
    assert sorted(written, key=lambda row: row["region"]) == table.to_pylist()
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["privacy_unit"] == "value of customer"


def test_partitions_can_be_selected_alone(monkeypatch):
    quiet.silence(monkeypatch)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        released = rows(pipeline) | transforms.DpSelectPartitions(
            epsilon=20.0, delta=1e-6, ledger="none", privacy_unit="customer", partition_by=["region", "dear"],
            max_partitions_contributed=2, columns={"dear": "paid > 100"},
        )  # fmt: skip
        assert_that(released | beam.Map(tuple), equal_to([("north", False), ("south", False)]))


@pytest.mark.parametrize(
    "more",
    [
        {"metrics": {"q": {"kind": "quantiles", "column": "paid", "quantiles": [0.5, 0.9], "min_value": 0, "max_value": 8}}},
        {"best": {"k": 1, "by": "users"}, "partitions": {"public": [["north"], ["south"]]},
         "metrics": {"users": {"kind": "privacy_id_count"}}},
        {"top": {"k": 1, "by": "orders"}},
        {"partition_by": ["region", "day"], "columns": {"day": "CAST(DATE '2025-01-06' + CAST(paid AS INTEGER) AS DATE)"}},
    ],
)  # fmt: skip
def test_the_declared_rows_are_those_that_come(more):
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        released = rows(pipeline) | transforms.DpAggregate(**{**SETTINGS, **more})
        again = released | beam.Reshuffle() | FromRows()  # through the coder of the declared type
        filled = again | beam.Filter(lambda table: table.num_rows > 0) | beam.Map(lambda table: min(table.num_rows, 1))
        nulls = again | beam.Map(lambda table: sum(column.null_count for column in table.columns))
        assert_that(filled | beam.Distinct(), equal_to([1]), label="rows")
        assert_that(nulls | "of all" >> beam.Distinct(), equal_to([0]), label="nulls")


def test_levels_of_a_rollup_come_with_keys_that_are_null():
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        more = {"partitions": {"public": [["north"], ["south"]]}, "rollup": [[], ["region"]]}
        released = rows(pipeline) | transforms.DpAggregate(**{**SETTINGS, **more})
        keys = released | beam.Map(lambda row: (row.level, row.region))
        assert_that(keys, equal_to([(0, None), (1, "north"), (1, "south")]))


def test_settings_may_be_text_for_languages_without_mappings():
    as_text = {key: json.dumps(held) if isinstance(held, dict) else held for key, held in SETTINGS.items()}
    assert transforms.DpAggregate(**as_text)._file.job == transforms.DpAggregate(**SETTINGS)._file.job


def test_the_plan_is_that_of_the_demos_job(shop):
    file = job_file.load(str(demo_job(shop)))
    config = yaml.safe_load((EXAMPLE / "weekly.yaml").read_text())["pipeline"]["transforms"][1]["config"]
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        made = pipeline | transforms.DpReadParquet("data/ta_feng/*.parquet")
        asked = transforms.DpAggregate(**config)._request(made)
    digest = run.plan_of(file, check(file, ()).stages).digest
    assert run.plan_of(asked.file, asked.stages).digest == digest


COLUMNS = {
    "text": pa.array(["a", None]),
    "day": pa.array([datetime.date(2025, 1, 6), None]),
    "at": pa.array([1_736_121_600_123_456, None], pa.timestamp("us")),
    "number": pa.array([1, None], pa.int32()),
    "small": pa.array([200, None], pa.uint8()),
    "float": pa.array([1.5, None]),
    "yes": pa.array([True, None]),
    "bytes": pa.array([b"a", None]),
    "list": pa.array([[1.0, None], None]),
}


def test_rows_and_tables_hold_the_same():
    table = pa.table(COLUMNS)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        tables = pipeline | beam.Create([table]).with_output_types(pa.Table)
        back = tables | ToSchemaRows(table.schema) | beam.Reshuffle() | FromRows()
        cells = back | beam.FlatMap(
            lambda made: [json.dumps(row, default=str, sort_keys=True) for row in made.to_pylist()]
        )
        assert_that(cells, equal_to([json.dumps(row, default=str, sort_keys=True) for row in table.to_pylist()]))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_beams_times_become_times_of_every_unit(unit):
    from dp_pipelines.transforms.rows.to_tables import table_of

    rows = [{"at": Timestamp(seconds=7)}, {"at": None}, {"at": "soon"}]
    made = table_of(rows, {"at": pa.timestamp(unit)})
    expected = [datetime.datetime(1970, 1, 1, 0, 0, 7), None, None]
    assert made["at"].cast(pa.timestamp("us")).to_pylist() == expected


def test_a_day_that_no_calendar_has_is_null():
    table = pa.table({"day": pa.array([2**31 - 1, 0], pa.int32()).cast(pa.date32())})
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        tables = pipeline | beam.Create([table]).with_output_types(pa.Table)
        days = tables | ToSchemaRows(table.schema) | beam.Map(lambda row: row.day)
        assert_that(days, equal_to([None, datetime.date(1970, 1, 1)]))


REFUSED = {
    "no ledger said": (
        {"ledger": ""},
        "ledger: must be none: what runs inside a pipeline is not accounted across runs",
    ),
    "a ledger": ({"ledger": "team.sqlite"}, "ledger: must be none"),
    "an unknown key": ({"metric": {}}, "metric: unknown key; did you mean 'metrics'"),
    "dead letters": (
        {"error_handling": {"output": "bad"}},
        "error_handling: would hand rows on as they are; leave it out",
    ),
    "an unknown metric": ({"metrics": {"x": {"kind": "cont"}}}, "metrics.x.kind: must be one of count"),
    "no column": ({"metrics": {"x": {"kind": "sum"}}}, "metrics.x.column: is missing; add it"),
    "no bounds": ({"bounds": {}}, "bounds"),
    "text for a number": ({"epsilon": "1e-6"}, "epsilon: must be a number"),
    "no yaml": ({"metrics": "{"}, "metrics: "),
    "a number as folder": ({"output": 5}, "output: must be the name of a folder; write"),
    "no folder": ({"output": "a\0b"}, "output: cannot be created; choose"),
    "a folder in a file": ({"output": f"{__file__}/out"}, "output: cannot be created; choose"),
    "too long a folder": ({"output": "x" * 300}, "output: cannot be created; choose"),
    "columns that are none": ({"columns": 0}, "columns: "),
    "no name": ({"name": "a/b"}, "name: must not start with a dot or contain a slash"),
    "private without delta": ({"delta": 0.0}, "delta: must be above 0 to select partitions privately"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_settings_are_refused_by_key_message_and_hint(case):
    changes, told = REFUSED[case]
    pipeline = beam.Pipeline(runner=FnApiRunner())
    with pytest.raises(RequestError) as refused:
        _ = rows(pipeline) | transforms.DpAggregate(**{**SETTINGS, **changes})
    assert told in str(refused.value)
    assert "query.json" not in str(refused.value)


OF_COLUMNS = {
    "no such partition": (
        {"partition_by": "regoin"},
        "partition_by: names column 'regoin', which does not exist; did you mean",
    ),
    "no number": (
        {"metrics": {"x": {"kind": "mean", "column": "region", "min_value": 0, "max_value": 1}}},
        "column 'region'",
    ),
    "no SQL": ({"where": "paid >"}, "where: is not an SQL expression"),
    "a float as partition": ({"partition_by": "paid", "metrics": {}}, "column 'paid' is a float"),
    "several pipelines": ({"partitions": {"private": {"strategy": "sips"}}}, "needs several pipelines"),
    "chosen bounds": (
        {"metrics": {"x": {"kind": "sum", "column": "paid", "min_value": 0, "max_value": "auto", "within": [0, 9]}}},
        "needs several pipelines",
    ),
}


@pytest.mark.parametrize("case", OF_COLUMNS)
def test_columns_are_checked_when_the_pipeline_is_built(case):
    changes, told = OF_COLUMNS[case]
    pipeline = beam.Pipeline(runner=FnApiRunner())
    with pytest.raises(RequestError) as refused:
        _ = rows(pipeline) | transforms.DpAggregate(**{**SETTINGS, **changes})
    assert told in str(refused.value)


def test_rows_without_types_are_refused():
    pipeline = beam.Pipeline(runner=FnApiRunner())
    untyped = pipeline | beam.Create(ROWS)
    with pytest.raises(RequestError, match="input: holds no rows with a schema; put a transform with declared types"):
        _ = untyped | transforms.DpAggregate(**SETTINGS)
    strange = pipeline | "strange" >> beam.Create([]).with_output_types(row_of(customer=str, region=dict[str, str]))
    with pytest.raises(RequestError, match="column 'region': has the type .*, which cannot be read here"):
        _ = strange | "of strange" >> transforms.DpAggregate(**{**SETTINGS, "metrics": {"orders": {"kind": "count"}}})


@pytest.mark.parametrize("key", ["epsilon", "privacy_unit", "partition_by", "bounds"])
def test_what_is_left_out_is_named(key):
    with pytest.raises(RequestError, match=f"{key}: is missing; add it"):
        transforms.DpAggregate(**{name: value for name, value in SETTINGS.items() if name != key})
    of_selection = {**SETTINGS, "max_partitions_contributed": 2}
    del of_selection["bounds"], of_selection["metrics"]
    left_out = "max_partitions_contributed" if key == "bounds" else key
    del of_selection[left_out]
    with pytest.raises(RequestError, match=f"{left_out}: is missing; add it"):
        transforms.DpSelectPartitions(**of_selection)


def test_columns_to_read_are_names(shop):
    for columns in (5, [], [None], ["SALES_PRICE", "SALES_PRICE"], {"SALES_PRICE": 1}):
        with pytest.raises(RequestError, match="columns: must be a list of different column names; write"):
            transforms.DpReadParquet("data/ta_feng/*.parquet", columns=columns)
    with pytest.raises(RequestError, match="files: is missing; add it"):
        transforms.DpReadParquet()
    for files in (5, ["data/ta_feng/*.parquet"]):
        with pytest.raises(RequestError, match="files: must be one file name or pattern; write"):
            transforms.DpReadParquet(files)
    assert transforms.DpReadParquet("data/ta_feng/*.parquet", columns="SALES_PRICE")._rows.names == ("SALES_PRICE",)


def test_rows_with_a_trigger_are_refused_since_each_pane_would_be_a_draw():
    typed = row_of(customer=str, region=str, paid=float)
    panes = beam.WindowInto(
        GlobalWindows(), trigger=Repeatedly(AfterCount(1)), accumulation_mode=AccumulationMode.ACCUMULATING
    )
    with pytest.raises(RequestError, match="input: has a trigger, which may release the same rows repeatedly"):
        _ = rows(beam.Pipeline()) | panes.with_output_types(typed) | transforms.DpAggregate(**SETTINGS)


def test_files_are_checked_when_the_pipeline_is_built(shop):
    with pytest.raises(RequestError, match="columns: names column 'SALE_PRICE', which does not exist; did you mean"):
        transforms.DpReadParquet("data/ta_feng/*.parquet", columns=["SALE_PRICE"])
    with pytest.raises(RequestError, match="matches no file"):
        transforms.DpReadParquet("nothing/*.parquet")
    pa.parquet.write_table(pa.table({"x": [{"a": 1}], "y": [1]}), "nested.parquet")
    with pytest.raises(RequestError, match="column 'x': has type .*, which rows cannot have"):
        transforms.DpReadParquet("nested.parquet", columns=["x"])
    assert transforms.DpReadParquet("nested.parquet")._rows.names == ("y",)


FAILS = {"language": "python", "fields": {"x": {"callable": "lambda row: 1 / 0 if int(row.customer) else 1"}}}

PIPELINES = {
    "our mistake": (
        {"type": "DpAggregate", "config": {**SETTINGS, "metrics": {"orders": {"kind": "cont"}}}},
        2,
        "pipeline.yaml:9: DpAggregate: metrics.orders.kind: must be one of count",
    ),
    "two of our mistakes": (
        {"type": "DpAggregate", "config": {**SETTINGS, "metrics": {"orders": {"kind": "cont"}}, "epsilon": 0}},
        2,
        "pipeline.yaml:9: DpAggregate: epsilon: must be above 0",
    ),
    "Beam's mistake": ({"type": "DpAgregate", "config": SETTINGS}, 2, "cannot be built, and no more is shown"),
    "a step that fails on a row": (
        {"type": "MapToFields", "config": FAILS},
        1,
        "the pipeline failed, and no detail is shown",
    ),
}


@pytest.mark.parametrize("case", PIPELINES)
def test_what_a_failed_pipeline_tells_is_public(case, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "providers.yaml").write_text((EXAMPLE / "providers.yaml").read_text())
    transform, code, told = PIPELINES[case]
    pipeline = (
        "providers: [{include: providers.yaml}]\npipeline:\n  type: chain\n  transforms:\n    - type: Create\n      config:\n"
        "        elements:\n          - {customer: '4711secret', region: north, paid: 1.5}\n"
        f"    - {json.dumps(transform)}\n"
    )
    Path("pipeline.yaml").write_text(pipeline)
    assert run_pipeline.main(["pipeline.yaml"]) == code
    out, err = capfd.readouterr()
    assert told in err
    assert "4711" not in out + err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: 1", "pipeline.yaml:1: is no pipeline of Beam YAML"),
        ("pipeline: {}\noptions: {runner: DirectRunner}", "pipeline.yaml: options: are not read here"),
        ("pipeline: {}\npipeline: {}", "pipeline.yaml:2"),
    ],
)
def test_a_file_that_is_no_pipeline_is_refused(text, told, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    Path("pipeline.yaml").write_text(text)
    assert run_pipeline.main(["pipeline.yaml"]) == 2
    assert told in capfd.readouterr().err


STEPS = """pipeline:
  type: chain
  transforms:
    - type: Create
      config: {{elements: [{{who: 1, region: north, paid: 2.5}}]}}
{windows}    - type: DpAggregate
      name: Release
      config:
        epsilon: 1
        ledger: none
        delta: 1.0e-6
        privacy_unit: who
        partition_by: region
        bounds: {{max_partitions_contributed: 1, max_contributions_per_partition: 1}}
        metrics: {{m: {{kind: sum, column: {column}, min_value: 0, max_value: 5}}}}
{more}providers:
  - type: python
    config: {{packages: []}}
    transforms: {{DpAggregate: dp_pipelines.jobs.beam_yaml.transforms.DpAggregate}}
"""
WINDOWS = "    - type: WindowInto\n      config: {windowing: {type: fixed, size: 60s}}\n"
MISTAKES = {
    "a misspelt column": ({"column": "payed"}, "pipeline.yaml:6: Release: metrics.m.column: names column 'payed'"),
    "windows": ({"windows": WINDOWS}, "pipeline.yaml:8: Release: input: is in windows, .*windowing: {type: global}"),
    "rows that fail": (
        {"more": "        error_handling: {output: bad}\n"},
        "pipeline.yaml:16: DpAggregate: error_handling: would hand rows on as they are; leave it out",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_in_a_file_is_told_with_its_line_in_words_of_yaml(case, tmp_path, monkeypatch, capfd):
    changes, told = MISTAKES[case]
    monkeypatch.chdir(tmp_path)
    Path("pipeline.yaml").write_text(STEPS.format(**{"windows": "", "column": "paid", "more": "", **changes}))
    assert run_pipeline.main(["pipeline.yaml"]) == 2
    said = capfd.readouterr().err
    assert re.search(told, said), said
    assert "Query(" not in said


def test_options_that_show_rows_are_refused(shop, capfd):
    assert run_pipeline.main(["weekly.yaml", "--runtime_type_check"]) == 2
    assert "--runtime_type_check: prints row values" in capfd.readouterr().err


def test_the_command_says_how_it_is_used(capfd):
    assert run_pipeline.main([]) == 2
    assert run_pipeline.main(["--help"]) == 0
    assert capfd.readouterr().err.count("PIPELINE.yaml") == 2


def test_the_provider_file_names_every_transform():
    (provider,) = yaml.safe_load((EXAMPLE / "providers.yaml").read_text())
    made = {
        name: f"dp_pipelines.jobs.beam_yaml.transforms.{name}"
        for name, held in vars(transforms).items()
        if inspect.isclass(held) and name.startswith("Dp")
    }
    assert provider["transforms"] == made


def test_what_is_computed_from_a_published_table_is_refused():
    metrics = {**SETTINGS["metrics"], "share": {"kind": "ratio", "of": "orders", "to": "orders"}}
    with pytest.raises(RequestError, match=r"metrics.share: is computed from a published table, and not in a pipeline"):
        transforms.DpAggregate(**{**SETTINGS, "metrics": metrics})
