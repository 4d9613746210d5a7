"""What a job cannot have whose privacy unit is one row (`privacy_unit: {row: true}`).

In: parts of a job file. Out: nothing, or a refusal. Holds: of one row nothing makes several, nothing looks at all rows of a
unit, and nothing splits units by a hash of their number. That number depends on the rows before it: by such a hash, a row that is
removed would move others. Not covered: names of columns, and bounds (`jobs.request`).
"""

from collections.abc import Collection, Mapping

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec.source_models import LookupModel


def refuse_beside_row_unit(
    *,
    tables: object | None,
    row_id: str | None,
    parties: object | None,
    lookups: Mapping[str, LookupModel],
    unit_columns: Mapping[str, Mapping[str, str]],
    others: Collection[str],
) -> None:
    """Refuse parts of a job.

    Args:
        tables, row_id, parties: of the job; None: it has none.
        lookups: by place.
        unit_columns: by stage.
        others: the stages that are no aggregates.

    Raises:
        RequestError: by field.
    """
    found = [key for value, key in ((tables, "tables"), (row_id, "row_id"), (parties, "parties")) if value is not None]
    found += [place for place, table in lookups.items() if table.max_rows_per_key > 1]
    found += [f"stages.{name}.kind" for name in others]
    found += [f"stages.{name}.unit_columns" for name, columns in unit_columns.items() if columns]
    for field in found:
        message = "cannot be combined with privacy_unit: {row: true}, whose units have one row each and no other name"
        hint = "name the column of the privacy unit, or drop this"
        raise RequestError(field=field, message=message, hint=hint)
