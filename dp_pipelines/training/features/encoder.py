"""Turns columns of examples into the numbers that a model sees: bins and categories become columns of zeros and ones.

In: features, pairs and label of a `TrainModel`, the bin edges and categories released for them, tables of examples.
Out: float32 rows and float64 labels; the encoder as JSON and back, without pickle. Holds: an encoded row depends only
on its own row; the number of columns, and a bound on the norm of a row, follow from the declaration; every number is a
multiple of 2**-16 from 0 to 1. Not covered: how edges and categories are found (`statistics`).
"""

# How values compare, everywhere: numbers as float64 (whole numbers beyond 2**53 and decimals round to the nearest, -0.0
# is 0.0, infinities are clamped, NaN is missing); categories exactly: text by its code points, whole numbers by value
# whatever their width, dates by day. Invalid UTF-8 and unlisted values share one column with nulls.

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dp_pipelines.errors import RequestError
from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.kernels import keys
from dp_pipelines.kernels.lattice import numbers_and_nulls
from dp_pipelines.query import feature_pairs
from dp_pipelines.query.train_model import (
    BinaryLabel,
    Category,
    ClassLabel,
    Feature,
    Label,
    Number,
    NumberLabel,
    TrainModel,
)
from dp_pipelines.training.features import category_values, input_types
from dp_pipelines.training.features.code_layout import CodeLayout, Codes, Steps
from dp_pipelines.training.features.input_types import wrong_types as wrong_types

FEW_CUTS = 63
"""So many comparisons of all numbers take less time than one search for each: a processor cannot guess its turns."""

STEPS = 2.0**16
"""Steps of a scaled value between 0 and 1; they keep later computations exact (`examples.Examples.times`)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Encoder:
    """How examples become numbers. It is public: everything in it was declared or released.

    Args:
        features, label, pairs: of the `TrainModel`.
        edges: for each number feature with several `bins`, the cut points between them, one less than bins; ascending,
            may repeat.
        vocabulary: for each category feature with `most`, the categories found, at most that many.

    Raises:
        RequestError: edges or categories do not fit the features.

    >>> task = TrainModel(privacy_unit="customer", label=BinaryLabel(column="returns"), features={
    ...     "visits": Number(column="visits", min_value=0, max_value=60, bins=3), "age": Category(column="age", most=2)})
    >>> encoder = Encoder.of(task, edges={"visits": [2, 5]}, vocabulary={"age": ["B"]})
    >>> encoder.encode(pa.table({"visits": [4, None], "age": ["B", "C"]})).tolist()
    [[1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]]
    >>> encoder.names[4:6]
    ('visits below 2', 'visits in [2, 5)')
    """

    features: Mapping[str, Feature]
    label: Label
    edges: Mapping[str, Sequence[float]] = FrozenMapping({})
    vocabulary: Mapping[str, Sequence[Any]] = FrozenMapping({})
    pairs: Sequence[feature_pairs.Pair] = ()

    def __post_init__(self) -> None:
        edges, vocabulary = {}, {}
        for name, feature in self.features.items():
            if isinstance(feature, Number) and feature.released_edges:
                edges[name] = _edges(name, feature, self.edges)
            elif isinstance(feature, Category) and feature.categories is None:
                vocabulary[name] = _categories(name, feature, self.vocabulary)
        for given, needed in ((self.edges, edges), (self.vocabulary, vocabulary)):
            if set(given) != set(needed):
                extra = sorted(set(given) ^ set(needed))[0]
                raise RequestError(field=f"features.{extra}", message="has edges or categories that nobody asked for")
        object.__setattr__(self, "features", FrozenMapping(self.features))
        object.__setattr__(self, "edges", FrozenMapping(edges))
        object.__setattr__(self, "vocabulary", FrozenMapping(vocabulary))
        object.__setattr__(self, "pairs", feature_pairs.checked(self.pairs, self.features))

    @classmethod
    def of(
        cls,
        task: TrainModel,
        *,
        edges: Mapping[str, Sequence[float]] = FrozenMapping({}),
        vocabulary: Mapping[str, Sequence[Any]] = FrozenMapping({}),
    ) -> "Encoder":
        """The encoder of a task."""
        return cls(features=task.features, label=task.label, edges=edges, vocabulary=vocabulary, pairs=task.pairs)

    @classmethod
    def skeleton(cls, task: TrainModel) -> "Encoder":
        """An encoder of a task before anything is released for it: bins of equal width, no categories.

        Anything it refuses, every encoder of this task would refuse after the budget is spent.

        >>> task = TrainModel(privacy_unit="u", label=BinaryLabel(column="y"),
        ...                   features={"x": Number(column="x", min_value=0, max_value=1, bins=2)})
        >>> Encoder.skeleton(task).edges["x"]
        (0.5,)
        """
        numbers = {name: f for name, f in task.features.items() if isinstance(f, Number) and f.released_edges}
        return cls.of(
            task,
            edges={
                name: np.linspace(f.min_value, f.max_value, f.cells + 1)[1:-1].tolist() for name, f in numbers.items()
            },
            vocabulary={
                name: () for name, f in task.features.items() if isinstance(f, Category) and f.categories is None
            },
        )

    @property
    def width(self) -> int:
        """The number of columns, which follows from the declared features and pairs alone."""
        return self.layout.width

    @property
    def row_norm(self) -> float:
        """A bound on the L2 norm of a row: a 1 for the constant, each feature and each pair, and at most 1 per scaled value."""
        scaled = sum(feature.scaled for feature in self.features.values() if isinstance(feature, Number))
        return math.nextafter(math.sqrt(1 + len(self.features) + len(self.pairs) + scaled), math.inf)

    @property
    def one_of(self) -> tuple[tuple[int, ...], ...]:
        """For each feature, then each pair, the columns of which every row has exactly one; no scaled value is among them."""
        return self.layout.one_of

    @property
    def parts(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """Columns of features that pairs divide: each with the cells of a pair that add up to it in every row."""
        of, names, found = self.one_of, list(self.features), []
        for pair, listed in zip(self.pairs, of[len(names) :], strict=True):
            first, second = (of[names.index(name)] for name in pair)
            across = len(second)
            found += [(column, listed[at * across : (at + 1) * across]) for at, column in enumerate(first)]
            found += [(column, listed[at::across]) for at, column in enumerate(second)]
        return tuple(found)

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """A readable, unique name for each column."""
        names, cells = ["constant"], {name: self._cell_names(name) for name in self.features}
        for name, feature in self.features.items():
            names += [*cells[name], *([f"{name}, scaled"] if feature.width > feature.hot else [])]
        for first, second in self.pairs:
            names += [f"{one} and {other}" for one, other in itertools.product(cells[first], cells[second])]
        return _told_apart(names)

    def _cell_names(self, name: str) -> list[str]:
        """What the columns of a feature are called of which a row has one."""
        feature = self.features[name]
        if isinstance(feature, Number):
            return [*_bin_names(name, self.cuts(name)), f"{name} is missing"]
        listed = self.listed(name)
        free = [f"{name}: free place {place}" for place in range(1, feature.width - len(listed))]
        return [*(f"{name} = {_shown(value)}" for value in listed), *free, f"{name} is another or missing"]

    def encode(self, table: pa.Table) -> NDArray[np.float32]:
        """The numbers of each row.

        Args:
            table: with the features' columns, of the types that `wrong_types` allows.

        Raises:
            RequestError: a column is missing, or its type does not fit the declaration (public facts).
        """
        matrix = np.zeros((table.num_rows, self.width), np.float32)
        matrix[:, 0] = 1
        rows, at = np.arange(table.num_rows), 1
        for hot, (places, steps) in zip(self.layout.hot, self._found(table), strict=True):
            matrix[rows, at + places] = 1
            at += hot
            if steps is not None:
                matrix[:, at] = steps / STEPS
                at += 1
        return matrix

    @functools.cached_property
    def layout(self) -> CodeLayout:
        """How `codes` writes a row."""
        return layout_of(self.features, self.pairs)

    def codes(self, table: pa.Table) -> tuple[Codes, Steps]:
        """The same rows as `encode`, in a few bytes: the codes of `layout`, and scaled values in steps of 2**-16.

        Args, raises: as for `encode`.

        Returns:
            (rows, layout.bytes), and (rows, scaled values).
        """
        found = self._found(table)
        steps = [own.astype(np.int32) for _, own in found if own is not None]
        codes = self.layout.coded([places for places, _ in found], table.num_rows)
        return codes, np.stack(steps, axis=1) if steps else np.zeros((table.num_rows, 0), np.int32)

    def products(self, table: pa.Table, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Each row times weights, added up in the order of the columns, so that it depends on that row alone, bit for bit.

        Args:
            table: as for `encode`.
            weights: (width, outputs).

        Returns:
            (rows, outputs).
        """
        total, at = np.repeat(weights[:1], table.num_rows, axis=0), 1
        found = self._found(table)
        with np.errstate(all="ignore"):  # weights may be infinite: no row may decide whether a warning is printed
            for hot, (places, steps) in zip(self.layout.hot, found, strict=True):
                total += weights[at + places]
                at += hot
                if steps is not None:
                    total += (steps / STEPS)[:, None] * weights[at]
                    at += 1
        return total

    def _found(self, table: pa.Table) -> list[tuple[NDArray[np.int64], NDArray[np.float64] | None]]:
        """For each feature, then each pair, which of its columns is 1 in each row, and the scaled value in steps, if any."""
        _refuse(input_types.of_features(table.schema, self.features))
        found: list[tuple[NDArray[np.int64], NDArray[np.float64] | None]] = []
        for name, feature in self.features.items():
            column = keys.one_array(table.column(feature.column))
            if isinstance(feature, Category):
                places = category_values.places(column, self.listed(name))
                found.append((np.where(places < 0, feature.width - 1, places).astype(np.int64), None))
                continue
            numbers, nulls = numbers_and_nulls(keys.plain(column))
            numbers = np.clip(numbers, feature.min_value, feature.max_value)
            cells = cells_of(numbers, self.cuts(name))
            steps = None
            if feature.scaled:
                part = (numbers - feature.min_value) / (feature.max_value - feature.min_value)
                steps = np.rint(part * STEPS)
            if nulls is not None:
                cells = np.where(nulls, feature.cells, cells)
                steps = None if steps is None else np.where(nulls, 0.0, steps)
            found.append((cells, steps))
        at = {name: places for name, (places, _) in zip(self.features, found, strict=True)}
        return found + [(at[one] * self.features[other].hot + at[other], None) for one, other in self.pairs]

    def labels(self, table: pa.Table) -> NDArray[np.float64]:
        """The label of each row: 0 or 1, the index of the class, or the clipped number; NaN if there is none.

        Raises:
            RequestError: as for `encode`.
        """
        _refuse(input_types.of_label(table.schema, self.label))
        column, label = keys.one_array(table.column(self.label.column)), self.label
        if isinstance(label, ClassLabel):
            places = category_values.places(column, label.classes)
            return np.where(places < 0, np.nan, places.astype(np.float64))
        numbers, nulls = numbers_and_nulls(keys.plain(column))
        if isinstance(label, NumberLabel):
            found = np.clip(numbers, label.min_value, label.max_value)
        else:
            found = np.where((numbers == 0) | (numbers == 1), numbers + 0.0, np.nan)
        return found if nulls is None else np.where(nulls, np.nan, found)

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values; each category with its type, since 1, true and "1" differ."""
        return {
            "label": _fields(self.label),
            "features": {name: _fields(feature) for name, feature in self.features.items()},
            "edges": {name: list(cuts) for name, cuts in self.edges.items()},
            "vocabulary": {name: category_values.to_json(listed) for name, listed in self.vocabulary.items()},
            **({"pairs": [list(pair) for pair in self.pairs]} if self.pairs else {}),
        }

    @classmethod
    def from_json(cls, content: Any) -> "Encoder":
        """The encoder that `to_json` wrote. Nothing in it is executed.

        Raises:
            RequestError: it is not an encoder.

        >>> task = TrainModel(privacy_unit="u", label=BinaryLabel(column="y"),
        ...                   features={"x": Category(column="x", categories=["a", "b"])})
        >>> Encoder.from_json(Encoder.of(task).to_json()) == Encoder.of(task)
        True
        """
        try:
            return cls(
                label=_made(content["label"], BinaryLabel, ClassLabel, NumberLabel),
                features={name: _made(fields, Number, Category) for name, fields in content["features"].items()},
                edges=dict(content["edges"]),
                vocabulary={name: category_values.from_json(listed) for name, listed in content["vocabulary"].items()},
                pairs=content.get("pairs", ()),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            message = f"is no encoder: {error}" if isinstance(error, RequestError) else "is no encoder"
            raise RequestError(field="encoder", message=message, hint="take a file that this program wrote") from None

    def cuts(self, name: str) -> Sequence[float]:
        """The cut points between the bins of a feature of numbers, declared or released."""
        feature = self.features[name]
        assert isinstance(feature, Number)
        return feature.edges or self.edges.get(name, ())

    def listed(self, name: str) -> Sequence[Any]:
        """The categories of a feature, declared or released."""
        feature = self.features[name]
        assert isinstance(feature, Category)
        return self.vocabulary[name] if feature.categories is None else feature.categories


def cells_of(numbers: NDArray[np.float64], cuts: Sequence[float]) -> NDArray[np.int64]:
    """How many of the cut points each number has reached.

    Args:
        numbers: any; one that is no number has reached all of them, or none.
        cuts: ascending.

    >>> cells_of(np.array([0.5, 1.0, 7.0]), (1.0, 2.0)).tolist()
    [0, 1, 2]
    """
    numbers = numbers.astype(np.float64, copy=False)
    if len(cuts) > FEW_CUTS:
        return np.searchsorted(np.array(cuts), numbers, side="right").astype(np.int64)
    cells = np.zeros(len(numbers), np.int8)
    for cut in cuts:
        cells += numbers >= cut
    return cells.astype(np.int64)


def layout_of(features: Mapping[str, Feature], pairs: Sequence[feature_pairs.Pair]) -> CodeLayout:
    """How rows of some features, and then of pairs of them, are written as codes: it follows from what is declared.

    >>> x, y = Number(column="x", min_value=0, max_value=1, bins=4, scaled=True), Category(column="y", most=2)
    >>> layout_of({"x": x, "y": y}, [("x", "y")]).hot
    (5, 3, 15)
    """
    hot = (*(feature.hot for feature in features.values()), *feature_pairs.columns(pairs, features))
    scaled = [feature.width > feature.hot for feature in features.values()]
    return CodeLayout(hot=hot, scaled=(*scaled, *(False for _ in pairs)))


def _edges(name: str, feature: Number, given: Mapping[str, Sequence[float]]) -> tuple[float, ...]:
    cuts = tuple(float(cut) + 0.0 for cut in given.get(name, ()))
    inside = all(feature.min_value <= cut <= feature.max_value for cut in cuts)
    if len(cuts) != feature.cells - 1 or not inside or any(a > b for a, b in itertools.pairwise(cuts)):
        message = f"needs {feature.cells - 1} cut points that rise within its range"
        raise RequestError(field=f"features.{name}", message=message)
    return cuts


def _categories(name: str, feature: Category, given: Mapping[str, Sequence[Any]]) -> tuple[Any, ...]:
    if name not in given:
        raise RequestError(field=f"features.{name}", message="needs its categories")
    listed = tuple(value for value in given[name] if value is not None)  # nulls share the column of all others
    tagged = category_values.to_json(listed)
    if len({tuple(pair) for pair in tagged}) != len(listed) or len(listed) > (feature.most or 0):
        raise RequestError(field=f"features.{name}", message=f"needs at most {feature.most} different categories")
    return listed


def _bin_names(name: str, cuts: Sequence[float]) -> list[str]:
    if not cuts:
        return [f"{name} is a number"]
    ends = [f"{cut:.6g}" for cut in cuts]
    inner = [f"{name} in [{low}, {high})" for low, high in itertools.pairwise(ends)]
    return [f"{name} below {ends[0]}", *inner, f"{name} from {ends[-1]}"]


def _shown(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return "".join(sign if sign.isprintable() else f"\\u{ord(sign):04x}" for sign in text)


def _told_apart(names: Sequence[str]) -> tuple[str, ...]:
    """The names, repeated ones with a number: bins without width have the same ends."""
    told: dict[str, None] = {}
    for name in names:
        free, number = name, 1
        while free in told:
            number += 1
            free = f"{name} ({number})"
        told[free] = None
    return tuple(told)


def _refuse(problems: Mapping[str, RequestError]) -> None:
    for problem in problems.values():
        raise problem


_LISTS = ("categories", "classes")
_KINDS: Mapping[type, str] = {
    Number: "number",
    Category: "category",
    BinaryLabel: "binary",
    ClassLabel: "classes",
    NumberLabel: "number",
}


def _fields(described: Feature | Label) -> dict[str, Any]:
    """A feature or label as JSON values."""
    fields: dict[str, Any] = {"kind": _KINDS[type(described)]}
    for field in dataclasses.fields(described):
        value = getattr(described, field.name)
        if value is not None:
            plain = list(value) if isinstance(value, tuple) else value
            fields[field.name] = category_values.to_json(value) if field.name in _LISTS else plain
    return fields


def _made(fields: Mapping[str, Any], *kinds: Any) -> Any:
    """The feature or label of some JSON values."""
    kind = {_KINDS[kind]: kind for kind in kinds}[fields["kind"]]
    given = {name: value for name, value in fields.items() if name != "kind"}
    return kind(
        **{name: category_values.from_json(value) if name in _LISTS else value for name, value in given.items()}
    )
