"""Which columns of the tables of a release are what, told from the release alone.

In: the manifest of a release, the columns of its tables. Out: `CsvLayout`s, as `csv_columns.layouts_of` makes them of a job.
Holds: no job file and no row is needed, so that files can be written of a release long after its run. Not covered: the public
list of a stage, which only a job has; the released rows say how large a grid becomes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.jobs.outputs.csv_columns import CsvLayout, NumberColumns
from dp_pipelines.metrics import registry
from dp_pipelines.query.compare import METRIC
from dp_pipelines.query.range_columns import ENDS
from dp_pipelines.release import finest_rows
from dp_pipelines.report.compare_text import FILE as COMPARISON
from dp_pipelines.report.derived import derived_columns
from dp_pipelines.report.pages import mapping, mappings, sequence, text
from dp_pipelines.report.words.number_format import FormOf


def layouts_of_release(
    content: Mapping[str, Any], schemas: Mapping[str, pa.Schema], form_of: Callable[[str], FormOf]
) -> dict[str, CsvLayout]:
    """Return the layout of each table of a release, by its name.

    Args:
        content: the manifest.
        schemas: of the tables.
        form_of: how the numbers of each metric of a stage are written.

    >>> stage = {"name": "weekly", "partition_by": ["week"], "metrics": {"orders": {"kind": "count"}}}
    >>> schema = pa.schema([("week", pa.string()), ("orders", pa.float64()), ("orders_stddev", pa.float64())])
    >>> found = layouts_of_release({"stages": [stage]}, {"weekly": schema}, lambda stage: lambda name: None)
    >>> found["weekly"].keys, found["weekly"].numbers[0].interval, found["weekly"].numbers[0].whole
    (('week',), ('orders_from', 'orders_to'), True)
    """
    stages = {text(stage.get("name")): stage for stage in mappings(content.get("stages"))}
    return {
        name: _of_stage(stages[name], schema.names, form_of(name)) if name in stages else _of_comparison(name, schema)
        for name, schema in schemas.items()
    }


def _of_comparison(name: str, schema: pa.Schema) -> CsvLayout:
    """Return the layout of a comparison of arms; of another table that no stage has, one without numbers."""
    if not name.endswith(f".{COMPARISON}") or METRIC not in schema.names:
        return CsvLayout(keys=())
    place = schema.get_field_index(METRIC)
    return CsvLayout(keys=tuple(schema.names[:place]), compared=tuple(schema.names[place + 1 :]))


def _of_stage(stage: Mapping[str, Any], columns: Sequence[str], form_of: FormOf) -> CsvLayout:
    """Return the layout of a stage's table."""
    numbers = []
    for name, entry in mapping(stage.get("metrics")).items():
        if not {name, f"{name}_stddev"} <= {*columns}:
            continue
        kind, ends = registry.of_kind(mapping(entry).get("kind")), tuple(f"{name}_{end}" for end in ENDS)
        has_ends = "kept" in stage and "raw_of" not in mapping(entry) and {*ends} <= {*columns}
        metric = text(mapping(entry).get("raw_of")) or name
        numbers.append(
            NumberColumns(
                value=name,
                stddev=f"{name}_stddev",
                whole=kind is not None and kind.whole,
                ends=(ends[0], ends[1], ends[2]) if has_ends else None,
                metric=metric,
                form=form_of(metric),
            )
        )
    derived, forms = [], {}
    for name in derived_columns.names_in(stage, columns):
        of_formula = derived_columns.column_names(name, ranged=True)
        for start in range(0, len(of_formula), 3):
            triple = of_formula[start : start + 3]
            if {*triple} <= {*columns}:
                derived.append(triple)
                if (form := form_of(name)) is not None:
                    forms[triple[0]] = form
    selection = mapping(stage.get("selection"))
    return CsvLayout(
        keys=tuple(text(key) for key in sequence(stage.get("partition_by"))),
        numbers=tuple(sorted(numbers, key=lambda one: columns.index(one.value))),
        derived=tuple(derived),
        levels=finest_rows.is_rollup(stage),
        ranks="candidates" in selection,
        other="other" in selection,
        forms=FrozenMapping(forms),
    )
