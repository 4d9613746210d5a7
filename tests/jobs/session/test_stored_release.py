"""A published folder in a program: tables, manifest and models as they were published, and nothing else.

In: a run of the shop, a folder with a model. Out: tables of several libraries, refusals. Not covered: what notebooks show of a
session's queries (`test_session`).
"""

import json
import pathlib
from collections.abc import Callable
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet
import pytest

import dp_pipelines as dp
from dp_pipelines.jobs.session.stored_release import ReleasedModel
from dp_pipelines.release import manifest
from tests.jobs.conftest import Said, Shop, stage
from tests.jobs.predict.test_predict import model
from tests.jobs.run.test_compare import arms, fill, rows

Call = Callable[..., Said]


def test_every_library_reads_the_tables_that_were_published(shop: Shop, call: Call) -> None:
    out = shop.folder / "out"
    assert call("run", shop.job, "--output", out, "--run-id", "one").code == 0
    release = dp.read_release(out)
    published = pa.parquet.read_table(out / "weekly.parquet")
    weekly = release["weekly"]
    assert (list(release), len(release), release.run_id, release.models) == (["weekly"], 1, "one", {})
    assert weekly.to_arrow().equals(published)
    assert weekly.to_arrow(bars=True).column_names[-2:] == ["revenue_from", "revenue_to"]
    assert polars.DataFrame(weekly).height == published.num_rows == len(weekly.to_pandas())
    assert duckdb.sql("SELECT count(*) FROM weekly").fetchall() == [(published.num_rows,)]
    assert release.manifest == json.loads((out / "manifest.json").read_text())
    assert "±" in repr(release)
    assert "<table>" in release._repr_html_()
    with pytest.raises(dp.RequestError, match="table 'weeky': is not in this release; did you mean 'weekly'?"):
        release["weeky"]
    assert (release.get("weekly"), release.get("weeky"), release.get("weeky", 0)) == (weekly, None, 0)
    (out / "weekly.parquet").write_bytes(b"changed")
    with pytest.raises(dp.RequestError, match="is damaged"):
        dp.read_release(out)
    with pytest.raises(dp.RequestError, match="does not exist"):
        dp.read_release(shop.folder / "nowhere")
    with pytest.raises(dp.RequestError, match="folder 's3://b/x': is a URL, and only folders of this machine are read"):
        dp.read_release("s3://b/x")


def test_numbers_have_the_formats_of_the_job(shop: Shop, call: Call) -> None:
    metrics: Any = stage()["metrics"]
    metrics["revenue"]["format"] = ".3f"
    shop.write(stages={"weekly": stage(metrics=metrics)})
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0
    weekly = dp.read_release(shop.folder / "out")["weekly"]
    numbers = [f"{revenue:.3f}" for revenue in weekly.to_arrow().column("revenue").to_pylist()]
    for text in (repr(weekly), weekly._repr_html_()):
        assert any(number in text for number in numbers)


def test_a_test_of_arms_has_the_verdict_of_its_page_and_another_table_has_none(shop: Shop, call: Call) -> None:
    fill(shop, rows())
    shop.write(stages=arms())
    said = call("run", shop.job, "--output", shop.folder / "out")
    assert said.code == 0, said.err
    (table,) = dp.read_release(shop.folder / "out").values()
    assert len(table.verdict) > 1
    printed = " ".join(said.out.split())
    assert all(" ".join(line.split()) in printed for line in table.verdict)
    assert "comparisons show" in table.verdict[0].replace("shows", "show")
    shop.write()
    assert call("run", shop.job, "--output", shop.folder / "plain", "--ledger", "none").code == 0
    assert dp.read_release(shop.folder / "plain")["weekly"].verdict == ()


def test_a_model_of_a_release_has_the_verdict_of_its_page(tmp_path: pathlib.Path) -> None:
    model(tmp_path / "returns")
    auc = {"value": 0.68, "noise_stddev": 0.127, "sampling_stddev": 0.02}
    alone = {"best_feature": {"auc": {"value": 0.779, "noise_stddev": 0.01}}}
    said = {"measures": {"auc": auc}, "baselines": alone, "best_feature": "age", "examples_per_unit": 1}
    (tmp_path / "returns" / "evaluation.json").write_text(json.dumps(said))
    files = {str(path.relative_to(tmp_path)): path for path in (tmp_path / "returns").iterdir()}
    whole = {"format": manifest.FORMAT, "stages": [], "models": {"returns": {}}, "files": manifest.digests(files)}
    manifest.write_manifest(whole | {"privacy_unit": "value of customer_id"}, tmp_path)
    (words,) = dp.read_release(tmp_path).models["returns"].verdict
    assert words.startswith("nothing shows that it ranks better than age alone, whose AUC is about 0.779 ± 0.020")
    (tmp_path / "returns" / "evaluation.json").unlink()
    assert ReleasedModel("returns", tmp_path / "returns", "customer").verdict == ()


def test_a_model_of_a_release_has_its_measures_and_predicts(tmp_path: pathlib.Path) -> None:
    made = model(tmp_path / "returns")
    (tmp_path / "returns" / "evaluation.json").write_text(json.dumps({"measures": {"auc": {"value": 0.7}}}))
    files = {str(path.relative_to(tmp_path)): path for path in (tmp_path / "returns").iterdir()}
    whole = {"format": manifest.FORMAT, "stages": [], "models": {"returns": {}}, "files": manifest.digests(files)}
    manifest.write_manifest(whole, tmp_path)
    found = dp.read_release(str(tmp_path)).models["returns"]
    assert (found.measures, found.description["privacy"]["epsilon"]) == ({"auc": {"value": 0.7}}, 1.0)
    examples = pa.table({"visits": [1.0, 5.0], "double": [10.0, 30.0], "product": ["p0", "p2"]})
    assert found.load().predict(examples).equals(made.predict(examples))
    assert "returns" in repr(dp.read_release(tmp_path))
