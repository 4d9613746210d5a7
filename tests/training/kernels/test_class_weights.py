"""Class weights: an example's gradient is multiplied by the weight of its class, before the clip, in both kernels."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines import BinaryLabel, ClassLabel, Number, NumberLabel, RequestError, Steps, TrainModel
from dp_pipelines.query.train_model import MLP, Label
from dp_pipelines.training.examples.store import Chunk
from dp_pipelines.training.kernels import of_task
from dp_pipelines.training.kernels.coded_linear import CodedLinear
from dp_pipelines.training.kernels.linear import LinearKernel
from tests.training.coded_units import LAYOUT, adversarial, chunk_of, dense, unit
from tests.training.kernels.test_coded_linear import BINARY, CLASSES, MATRICES, exact, some, squared_length, values

WEIGHTS = {"BinaryLabel": (0.05, 1.0), "ClassLabel": (1.0, 0.3, 1e-3)}


def coded(label: Label, matrix: str = "even") -> CodedLinear:
    own = CodedLinear(layout=LAYOUT, label=label, class_weights=WEIGHTS[type(label).__name__])
    return own.whitened(MATRICES[matrix])


@pytest.mark.parametrize("label", [BINARY, CLASSES], ids=lambda label: type(label).__name__)
def test_an_example_counts_as_much_as_its_class(label: Label) -> None:
    """Beside sums that are made example by example, of the kernel without weights; no unit reaches the norm."""
    weights = WEIGHTS[type(label).__name__]
    made = np.random.default_rng(3)
    rows, labels = made.normal(size=(20, 6)).astype(np.float32), made.integers(0, len(weights), 20).astype(float)
    chunk = Chunk(rows, labels, np.array([0, 3, 4, 20]))
    plain = LinearKernel(width=6, label=label)
    parameters = made.normal(size=plain.size)
    found = LinearKernel(width=6, label=label, class_weights=weights).clipped_sum(parameters, chunk, 1e6)
    each = [
        weights[int(own)] * plain.clipped_sum(parameters, Chunk(row[None], own[None], np.array([0, 1])), 1e6)
        for row, own in zip(rows, labels, strict=True)
    ]
    assert found == pytest.approx(np.sum(each, axis=0), abs=1e-3)
    assert not np.allclose(found, plain.clipped_sum(parameters, chunk, 1e6), atol=1e-2)


@pytest.mark.parametrize("norm", [1.0, 1e6])
@pytest.mark.parametrize("label", [BINARY, CLASSES], ids=lambda label: type(label).__name__)
def test_both_kernels_give_the_same_sums(label: Label, norm: float) -> None:
    made, generator = coded(label), np.random.default_rng(1)
    units = [unit(generator, rows, values(label)) for rows in (1, 2, 3, 10, 32, 33, 70)]
    chunk, parameters = chunk_of(units, made.multiply), some(made, 0.1)
    rows = (dense(units) @ made.columns.matrix).astype(np.float32)
    beside = LinearKernel(width=LAYOUT.width, label=label, class_weights=made.class_weights)
    expected = beside.clipped_sum(parameters, Chunk(rows, chunk.labels, chunk.starts), norm)
    found = made.clipped_sum(parameters, chunk, norm)
    assert np.linalg.norm(found - expected) < 1e-4 * np.linalg.norm(expected)


@settings(max_examples=30)
@given(
    data=st.data(),
    label=st.sampled_from([BINARY, CLASSES]),
    matrix=st.sampled_from(sorted(MATRICES)),
    norm=st.sampled_from([1e-50, 0.3, 1e9]),
    size=st.sampled_from([0.0, 1.0, 1e8]),
)
def test_a_unit_adds_what_it_adds_alone_and_no_more_than_the_norm_exactly(
    data: st.DataObject, label: Label, matrix: str, norm: float, size: float
) -> None:
    made = coded(label, matrix)
    units, parameters = data.draw(adversarial(values(label), most=4)), some(made, size)
    alone = sum(
        (exact(made, parameters, [each], norm) for each in units), np.zeros((LAYOUT.width, made.outputs), object)
    )
    assert (exact(made, parameters, units, norm) == alone).all()
    for each in units:
        assert squared_length(made, parameters, [each], norm) <= Fraction(norm) ** 2


def test_an_example_without_a_label_adds_nothing() -> None:
    rows, starts = np.ones((2, 3), np.float32), np.array([0, 1, 2])
    kernel = LinearKernel(width=3, label=BINARY, class_weights=(0.5, 1.0))
    both = kernel.clipped_sum(kernel.initial(), Chunk(rows, np.array([1.0, np.nan]), starts), 9.0)
    assert both.tolist() == [-0.5] * 3


FEATURES = {"x": Number(column="x", min_value=0, max_value=1)}


def task(**changes: object) -> TrainModel:
    asked: dict[str, object] = {"privacy_unit": "u", "label": BinaryLabel(column="y"), "features": FEATURES}
    return TrainModel(**{**asked, **changes})  # type: ignore[arg-type]


def test_the_kernels_of_a_task_have_its_weights_over_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = task(steps=Steps(class_weights=[1, 20]))
    for compiles in (True, False):
        monkeypatch.setattr(of_task, "compiles", lambda answer=compiles: answer)
        assert of_task.kernel_of(asked, b"").class_weights == (0.05, 1.0)  # type: ignore[attr-defined]
        assert of_task.kernel_of(task(), b"").class_weights is None  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"steps": Steps(class_weights=[1, 2, 3])}, "must be 2 numbers, one for each class; write false first"),
        ({"steps": Steps(class_weights=[1]), "label": ClassLabel(column="y", classes=[1, 2, 3])}, "must be 3 numbers"),
        (
            {"steps": Steps(class_weights=[1]), "label": ClassLabel(column="y", classes=["a", "b"])},
            "each class; see classes: of",
        ),
        (
            {"steps": Steps(class_weights=[1, 2]), "label": NumberLabel(column="y", min_value=0, max_value=1)},
            "is for classes",
        ),
        ({"steps": Steps(class_weights=[1, 2]), "model": MLP()}, "fit.class_weights: is for linear models alone"),
        ({"steps": Steps(l2=0.1), "model": MLP()}, "fit.l2: is for linear models alone"),
    ],
)
def test_weights_that_do_not_fit_are_refused(asked: dict[str, object], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        task(**asked)


@pytest.mark.parametrize("weights", ["12", [0.0, 1.0], [1.0, float("nan")], [True, 1.0], {1: 2}])
def test_weights_that_are_none_are_refused(weights: object) -> None:
    with pytest.raises(RequestError, match="class_weights"):
        Steps(class_weights=weights)  # type: ignore[arg-type]
