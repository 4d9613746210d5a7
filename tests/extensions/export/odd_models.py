"""Models whose features, pairs, cuts, categories and weights are odd, and rows that are odd for them.

In: choices of hypothesis. Out: an artefact and a table of examples with its features' columns. Holds: every kind of feature
and label is among them; values stand on cuts and beside them. Not covered: columns of types that are no number and no
category.
"""

import datetime
import itertools
import unicodedata
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from dp_pipelines import BinaryLabel, Category, ClassLabel, Number, NumberLabel, TrainModel
from dp_pipelines.training.artefact import Artefact
from dp_pipelines.training.description import Statement
from dp_pipelines.training.features.encoder import Encoder

HARMFUL = (
    "'); DROP TABLE victim; --",
    "' OR '1'='1",
    "\\'; DROP TABLE victim; --",
    "\\",
    "a\nb",
    "a\r\n-- b",
    "$$; DROP TABLE victim; $$",
    "/* a",
    "a */ b",
    "%s {} :x ?",
    "E'\\n'",
    "\u202e gnihton",
    "\ufeff",
    "\u2028",
    "\x1b[2J",
    "\x7f",
)
"""What must stay a value."""

PLAIN = (
    "",
    " ",
    "north",
    "North",
    "NORTH",
    "é",
    "e\u0301",
    "ß",
    "ss",
    "İ",
    "i",
    "𝒳",
    "👩\u200d🚀",
    "1",
    "null",
    "NULL",
    "true",
)
ODD_NUMBERS = (0.0, -0.0, 1.0, 5e-324, -5e-324, 1e308, -1e308, float("inf"), float("-inf"), float("nan"), 2.0**53 + 2)

RANGES = ((0.0, 60.0), (-1.0, 1.0), (0.0, 5e-324), (-9.9e299, 9.9e299), (1e-5, 1e5))

texts = st.one_of(st.sampled_from(HARMFUL + PLAIN), st.text(max_size=6))
days = st.dates(datetime.date(1, 1, 1), datetime.date(9999, 12, 31))
whole = st.one_of(st.integers(-3, 3), st.sampled_from([2**62, -(2**63), 2**63 - 1, 2**31]))


def artefact(
    task: TrainModel, encoder: Encoder, parameters: np.ndarray, whitening: np.ndarray | None = None
) -> Artefact:
    """A model of these numbers."""
    return Artefact(
        task=task,
        encoder=encoder,
        parameters=parameters,
        whitening=whitening,
        privacy=Statement(unit="value of u", epsilon=1.0, delta=1e-6, plan="ab"),
    )


@st.composite
def _number(draw: st.DrawFn, name: str) -> tuple[Number, list[float], pa.Array]:
    low, high = draw(st.sampled_from(RANGES))
    between = st.one_of(st.sampled_from([low, high, (low + high) / 2]), st.floats(low, high))
    scaled = draw(st.booleans())
    cuts = sorted(draw(st.lists(between, min_size=0 if scaled else 1, max_size=4)))
    feature = Number(column=name, min_value=low, max_value=high, bins=len(cuts) + 1, scaled=scaled)
    at = [low, high, *cuts]
    beside = [float(np.nextafter(cut, way)) for cut in at for way in (-np.inf, np.inf)]
    if draw(st.booleans()):
        values = st.one_of(st.sampled_from([*at, *beside, *ODD_NUMBERS]), st.floats(), st.floats(low, high), st.none())
        return feature, cuts, pa.array(draw(_rows(values)), pa.float64())
    near = {round(cut) + step for cut in at if abs(cut) < 1e9 for step in (-1, 0, 1)}
    integers = st.one_of(st.sampled_from(sorted({*near, 2**53 + 1, -(2**62)})), st.none())
    return feature, cuts, pa.array(draw(_rows(integers)), pa.int64())


ROWS = 12


def _rows(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(values, min_size=ROWS, max_size=ROWS)


@st.composite
def _category(draw: st.DrawFn, name: str) -> tuple[Category, list[Any], pa.Array]:
    values, kind = draw(
        st.sampled_from(
            [
                (texts, pa.string()),
                (texts, pa.string()),
                (whole, pa.int64()),
                (days, pa.date32()),
                (st.booleans(), pa.bool_()),
            ]
        )
    )
    listed = draw(st.lists(values, unique_by=lambda value: (type(value), value), max_size=5))
    near = list(listed)
    if kind == pa.string():
        changes = (
            str.upper,
            str.lower,
            str.strip,
            lambda text: text + " ",
            lambda text: unicodedata.normalize("NFD", text),
        )
        near += [change(text) for text, change in itertools.product(listed, changes)]
    own = st.one_of(st.sampled_from(near), values, st.none()) if near else st.one_of(values, st.none())
    return (
        Category(column=name, most=max(1, len(listed) + draw(st.integers(0, 2)))),
        listed,
        pa.array(draw(_rows(own)), kind),
    )


@st.composite
def models(draw: st.DrawFn) -> tuple[Artefact, pa.Table]:
    """A linear model, and rows."""
    features: dict[str, Any] = {}
    edges: dict[str, list[float]] = {}
    vocabulary: dict[str, list[Any]] = {}
    columns: dict[str, pa.Array] = {}
    for place in range(draw(st.integers(1, 3))):
        name = ["x", 'a "b"; --', "größe 'x'"][place]
        if draw(st.booleans()):
            features[name], cuts, columns[name] = draw(_number(name))
            if features[name].released_edges:
                edges[name] = cuts
        else:
            features[name], vocabulary[name], columns[name] = draw(_category(name))
    labels = (
        BinaryLabel(column="y"),
        NumberLabel(column="y", min_value=-2, max_value=3),
        ClassLabel(column="y", classes=["a'b", "B", "b"]),
        ClassLabel(column="y", classes=[3, -1]),
    )
    able = [name for name, feature in features.items() if feature.cells > 1]
    pairs = draw(st.lists(st.sampled_from([*itertools.combinations(able, 2)]), unique=True)) if len(able) > 1 else []
    task = TrainModel(
        privacy_unit="u", label=draw(st.sampled_from(labels)), features=features, whiten=False, pairs=pairs
    )
    made = np.random.default_rng(draw(st.integers(0, 2**32)))
    parameters = made.normal(size=task.size) * 10.0 ** draw(st.sampled_from([0, 0, 0, -8, 1, 4]))
    encoder = Encoder.of(task, edges=edges, vocabulary=vocabulary)
    return artefact(task, encoder, parameters), pa.table(columns)
