"""examples/pytorch: a PyTorch network under the budget and the ledger of a job.

In: the job file, the module beside it, rows of the shop. Out: a release with a model that predicts. Holds: PyTorch is no
dependency of the library: without it these tests are skipped. Not covered: how well it predicts.
"""

import importlib.util
import pathlib
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from dp_pipelines.jobs.cli import main
from tests.helpers.source import ROOT

pytest.importorskip("torch")
pytest.importorskip("jax")

EXAMPLE, MAKE_ROWS = ROOT / "examples" / "pytorch", ROOT / "examples" / "shop" / "make_rows.py"


@pytest.fixture
def shop(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The example's folder with a tenth of the rows."""
    for path in EXAMPLE.iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)
    spec = importlib.util.spec_from_file_location("make_rows", MAKE_ROWS)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    rows = made.rows()
    (tmp_path / "data").mkdir()
    pq.write_table(rows.filter(np.asarray(rows["customer_id"]) < 3000), tmp_path / "data" / "shop.parquet")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_it_trains_under_the_ledger_and_predicts(shop: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = yaml.safe_load((shop / "returns.yaml").read_text())
    job["stages"]["returns"]["fit"]["steps"] = 3
    (shop / "returns.yaml").write_text(yaml.safe_dump(job))
    assert main.main(["run", "returns.yaml", "--output", "out"]) == 0, capsys.readouterr().err
    assert "charged once, to the account 'shop'" in capsys.readouterr().out
    given = ["predict", "out/returns", "data/*.parquet", "--output", "scores.parquet"]
    assert main.main(given) == 2
    assert main.main([*given, "--jax-model", "returns_net:net"]) == 0
    scores = pq.read_table(shop / "scores.parquet")["probability"].to_numpy()
    assert len(scores) > 1000
    assert ((scores > 0) & (scores < 1)).all()
    assert np.ptp(scores) > 0


def test_what_a_customer_gives_is_pytorchs_own_gradient_clipped(shop: pathlib.Path) -> None:
    import returns_net
    import torch

    from dp_pipelines.training.examples.store import Chunk
    from dp_pipelines.training.kernels.own_gradients import GradientKernel

    net, made = returns_net.net, np.random.default_rng(1)
    features = made.random((3, returns_net.WIDTH)).astype(np.float32)
    labels, at = np.array([1.0, 0.0, 1.0]), made.normal(size=net.size)
    kernel = GradientKernel(model=net, size=net.size)
    found = kernel.clipped_sum(at, Chunk(features, labels, np.array([0, 3])), 0.1)
    parameters = torch.tensor(at, dtype=torch.float32, requires_grad=True)
    shapes = [(returns_net.HIDDEN, returns_net.WIDTH), (returns_net.HIDDEN,), (1, returns_net.HIDDEN), (1,)]
    first, bias, last, final = (
        part.reshape(shape)
        for part, shape in zip(parameters.split([int(np.prod(shape)) for shape in shapes]), shapes, strict=True)
    )
    said = torch.tanh(torch.tensor(features) @ first.T + bias) @ last.T + final
    loss = torch.nn.functional.softplus(said[:, 0]) - torch.tensor(labels, dtype=torch.float32) * said[:, 0]
    loss.sum().backward()
    gradient = parameters.grad.numpy().astype(np.float64)
    assert found == pytest.approx(gradient * min(1, 0.1 / np.linalg.norm(gradient)), abs=1e-6)
    assert np.linalg.norm(found) <= 0.1
