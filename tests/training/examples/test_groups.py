"""Who reads whose examples: units are divided in one place, by their own text, and a stage gets the group that its records name.

In: made-up examples, stages of a plan, the source. Out: nothing. Holds: no chance decides a test. Not covered: what releases do
with their rows (`tests/audit/test_fitted.py`).
"""

import ast
import dataclasses
import pathlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dp_pipelines import Plan, RequestError
from dp_pipelines.kernels.columns.long_text import stand_in
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.training.examples.groups import AllUnits, HeldOutUnits, TrainingUnits
from dp_pipelines.training.examples.split import COLUMN, as_decided, split, with_answers
from tests.helpers.source import ROOT, modules
from tests.training.test_fit import examples, task

LENGTHS = (1, 8, 63, 64, 65, 66, 255, 256, 257, 1000, 4095, 4096, 4097, 4999, 5000)
"""Bytes of a text, about: each further word of a hash, each limit above which text is cut or digested somewhere."""

IDS: dict[str, tuple[pa.Array, str]] = {
    "text": (pa.array([f"unit {i}" for i in range(64)]), "8a25fc38a3881dda"),
    "text of many lengths": (pa.array(["ab" * (n // 2) + str(n) for n in LENGTHS]), "25b0"),
    "numbers": (pa.array(range(-32, 32)), "8b9ac5282fb225f4"),
    "large numbers": (pa.array([2**40 + i for i in range(64)]), "26ab4c9f7cc68d12"),
}
"""Units, and who of them is held out at one half with the key `plan`, a bit for each: as it was when plans were first charged."""


@pytest.mark.parametrize("kind", IDS)
def test_who_is_held_out_is_what_it_always_was(kind: str) -> None:
    """All runs of a plan, and all versions that run it, must divide its units alike, else a unit is in both groups."""
    units, held_out = IDS[kind]
    assert np.packbits(split([units], key=b"plan", held_out=0.5)).tobytes().hex() == held_out


@pytest.mark.parametrize("kind", IDS)
def test_a_unit_is_in_its_group_whoever_stands_beside_it_and_however_it_is_written(kind: str) -> None:
    units, _ = IDS[kind]
    together = split([units], key=b"plan", held_out=0.5).tolist()
    alone = [bool(split([units.slice(place, 1)], key=b"plan", held_out=0.5)[0]) for place in range(len(units))]
    assert alone == together
    for other in (units.dictionary_encode(), pa.chunked_array([units.slice(0, 5), units.slice(5)])):
        assert split([other], key=b"plan", held_out=0.5).tolist() == together
    twice = pa.concat_arrays([units, units[::-1]])
    assert split([twice], key=b"plan", held_out=0.5).tolist() == together + together[::-1]


def stages() -> dict[str, StagePlan]:
    """The parts of a train stage."""
    return dict(Plan(epsilon=8, delta=1e-5, stages={"model": task()}).stages)


def divided(*tables: pa.Table) -> tuple[TrainingUnits, HeldOutUnits]:
    """Both groups of the units in some tables."""
    return AllUnits(tables=lambda: iter(tables), unit=("who",), key=b"key", held_out=0.3).divided()


def test_each_unit_is_in_one_group_with_all_its_rows() -> None:
    rows, parts = examples(200), stages()
    training, held_out = divided(rows.slice(0, 100), rows.slice(100))
    found = [
        pa.concat_tables(training.rows_for(parts["model"])),
        pa.concat_tables(held_out.rows_for(parts["model.evaluation"])),
    ]
    units = [set(table.column("who").to_pylist()) for table in found]
    assert units[0] | units[1] == set(range(200))
    assert not units[0] & units[1]
    assert all(table.num_rows == 2 * len(group) for table, group in zip(found, units, strict=True))


@pytest.mark.parametrize(
    "answers",
    [
        pa.array([True, False] * 20),  # a unit in both groups, in each of which it would count in full
        pa.array([1, 0] * 20),
        pa.array(["yes"] * 40),
        pa.array([None] * 40, pa.bool_()),
    ],
    ids=["truths", "numbers", "text", "nulls"],
)
def test_a_column_of_the_rows_never_says_who_is_held_out(answers: pa.Array) -> None:
    parts, foreign = stages(), examples(20).append_column(COLUMN, answers)
    training, held_out = divided(foreign)
    for group, name in ((training, "model"), (held_out, "model.evaluation")):
        # Already the columns are refused, whatever is in them, even nothing.
        for rows in (foreign, foreign.slice(0, 0)):
            with pytest.raises(RequestError, match=r"__dp_held_out.*no column that BoundedExamples wrote"):
                list(divided(rows)[group is held_out].rows_for(parts[name]))


def with_long_names(rows: pa.Table) -> pa.Table:
    """The same rows of units whose names travel as stand-ins."""
    names = [stand_in(str(unit).encode()).decode() for unit in rows.column("who").to_pylist()]
    return rows.set_column(0, "who", pa.array(names))


def test_answers_decided_before_are_believed_of_stand_ins_and_those_only_named_so_are_not() -> None:
    parts, rows = stages(), with_long_names(examples(20))
    answered = with_answers(rows, ["who"], key=b"the names themselves", held_out=0.3)
    (found,) = divided(as_decided(answered))[1].rows_for(parts["model.evaluation"])
    assert found.num_rows == sum(answered.column(COLUMN).to_pylist()) > 0
    with pytest.raises(RequestError, match="no column that BoundedExamples wrote"):
        list(divided(answered)[1].rows_for(parts["model.evaluation"]))
    for other in (answered.column(COLUMN), as_decided(answered).column(COLUMN)):
        twice = as_decided(answered).append_column(as_decided(answered).schema.field(COLUMN), other)
        with pytest.raises(RequestError, match="no column that BoundedExamples wrote"):
            list(divided(twice)[1].rows_for(parts["model.evaluation"]))


@pytest.mark.parametrize("rows", [examples(20), with_long_names(examples(20))], ids=["names", "stand-ins"])
@pytest.mark.parametrize("answers", [[True, False], [None, True], [None, None], [False, False]], ids=str)
def test_a_file_that_forges_the_mark_puts_no_unit_into_both_groups(
    rows: pa.Table, answers: list[bool | None], tmp_path: pathlib.Path
) -> None:
    forged = as_decided(rows.append_column(COLUMN, pa.array(answers * 20, pa.bool_())))
    pq.write_table(forged, tmp_path / "forged.parquet")
    read = pq.read_table(tmp_path / "forged.parquet")
    assert read.schema.field(COLUMN).metadata  # a file keeps the mark
    training, held_out = divided(read)
    parts = stages()
    groups = [
        {unit for table in group.rows_for(parts[name]) for unit in table.column("who").to_pylist()}
        for group, name in ((training, "model"), (held_out, "model.evaluation"))
    ]
    assert not groups[0] & groups[1]
    assert groups[0] | groups[1] == set(rows.column("who").to_pylist())
    if rows.column("who").to_pylist()[0] == 0:  # what can be worked out is not asked of the file
        asked = split([rows.column("who")], key=b"key", held_out=0.3)
        assert groups[1] == {unit for unit, out in zip(rows.column("who").to_pylist(), asked, strict=True) if out}


def test_a_stage_gets_the_group_that_all_its_records_name_and_no_other() -> None:
    parts = stages()
    training, held_out = divided(examples(20))
    for name, stage in parts.items():
        right, wrong = (held_out, training) if name == "model.evaluation" else (training, held_out)
        assert list(right.rows_for(stage))
        with pytest.raises(AssertionError, match="do not all name"):
            wrong.rows_for(stage)


def test_records_of_no_group_of_several_or_none_at_all_get_nothing() -> None:
    stage = stages()["model.users"]
    first, *rest = stage.mechanisms
    for records in (
        (),
        (dataclasses.replace(first, group=None), *rest),
        (dataclasses.replace(first, group="held out"), *rest),
    ):
        false = dataclasses.replace(stage, mechanisms=records)
        for group in divided(examples(20)):
            with pytest.raises(AssertionError, match="'model.users'"):
                group.rows_for(false)


def test_encoded_examples_keep_their_group(tmp_path: pathlib.Path) -> None:
    from dp_pipelines.training.features.encoder import Encoder
    from dp_pipelines.training.kernels.coded_linear import CodedLinear

    parts = stages()
    encoder = Encoder.of(task(), edges={"x": (0.2, 0.5, 0.8)}, vocabulary={"kind": ("a", "b")})
    training, _ = divided(examples(20))
    with pytest.raises(AssertionError):
        training.encoded(parts["model.evaluation"], tmp_path, "rows", encoder)
    encoded = training.encoded(parts["model"], tmp_path, "rows", encoder)
    whitened = encoded.times(tmp_path, "white", np.eye(encoder.width))
    with pytest.raises(AssertionError):
        training.coded(parts["model.evaluation"], tmp_path, "codes", encoder)
    coded = training.coded(parts["model"], tmp_path, "codes", encoder)
    kernel = CodedLinear(layout=encoder.layout, label=task().label)
    multiplied = coded.with_products(tmp_path, "products", kernel.multiply)
    for each in (encoded, whitened, coded, multiplied):
        assert each.rows_for(parts["model.moments"]).units > 0
        with pytest.raises(AssertionError):
            each.rows_for(parts["model.evaluation"])
    # How many examples there are is private, and nothing says it but to a stage that may read them.
    assert {name for name in dir(encoded) if not name.startswith("_")} == {
        "group",
        "rows_for",
        "times",
        "with_products",
    }


# One place for each thing, by the source.

ONE_PLACE = {
    "split": {"dp_pipelines.training.examples.split", "dp_pipelines.audit.made_up"},
    "answers_of": {"dp_pipelines.training.examples.groups"},
    "with_answers": {"dp_pipelines.steps.write_examples"},
    "as_decided": {"dp_pipelines.steps.write_examples"},
    "AllUnits": {"dp_pipelines.training.fit"},
    "TrainingUnits": {"dp_pipelines.training.examples.groups"},
    "HeldOutUnits": {"dp_pipelines.training.examples.groups"},
    "TrainingExamples": {"dp_pipelines.training.examples.groups"},
    "Released": {"dp_pipelines.training.stage_on_disk", "dp_pipelines.audit.steps"},
}
"""Who calls what: only the audit, which reads no data, beside the one place."""

DOORS = {"NoisySum", "PoissonSampler", "draw_release", "Examples", "CodedExamples"}
"""What `fit` does not name: it draws through `training.drawing`, and gets examples from `training.examples.groups`."""


def calls(source: str) -> Iterator[str]:
    """The bare names that are called."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id


def elsewhere(module: str, source: str) -> list[str]:
    """What a module calls though another one is the place for it."""
    return [name for name in calls(source) if name in ONE_PLACE and module not in ONE_PLACE[name]]


def test_groups_are_made_and_released_numbers_named_in_one_place() -> None:
    found = {name: path.read_text(encoding="utf-8") for name, path in modules().items()}
    assert [one for name, text in found.items() for one in elsewhere(name, text)] == []
    calls_of = {module: set(calls(text)) for module, text in found.items()}
    called = {name: {module for module, names in calls_of.items() if name in names} for name in ONE_PLACE}
    assert called == ONE_PLACE


@pytest.mark.parametrize(
    "source", ["TrainingUnits(everybody)", "Released(float(examples.rows))", "split([unit], key=k)"]
)
def test_another_place_is_found(source: str) -> None:
    assert elsewhere("dp_pipelines.training.fit", source)


def reads(source: str) -> list[str]:
    """The methods that touch the undivided tables, and the names that `fit` has no business with."""
    tree = ast.parse(source)
    found = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in DOORS]
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        inside = [node for node in ast.walk(function) if isinstance(node, ast.Attribute)]
        found += [function.name for node in inside if ast.unparse(node) == "self.tables"]
    return found


def test_fit_hands_the_tables_to_the_place_that_divides_them_and_draws_through_the_doors() -> None:
    path = ROOT / "dp_pipelines/training/fit.py"
    # `refuse_unfit` looks at the columns of the first table, and hands nothing on.
    assert reads(path.read_text(encoding="utf-8")) == ["refuse_unfit", "_divided"]
    assert reads("class F:\n def _table(self): return list(self.tables()), NoisySum(size=3)") == ["NoisySum", "_table"]
