"""All that a job publishes beside Parquet: checked before a row is read, written after the tables, delivered after the release.

In: `outputs:` of a job file, the schemas of its tables, staged files. Out: text files beside them, tables in other places.
Holds: what a format cannot hold is refused by the types of columns; every file here is made of the published Parquet file alone,
on the machine of the command, so that no runner changes a byte. Not covered: when each is called (`jobs.run`).
"""

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.outputs import extension_output
from dp_pipelines.jobs.outputs.csv_columns import CsvLayout, with_laws
from dp_pipelines.jobs.outputs.extension_output import BoundOutput, transaction_of
from dp_pipelines.jobs.outputs.ordered_rows import in_order_of_job
from dp_pipelines.jobs.outputs.release_place import ReleasePlace
from dp_pipelines.jobs.outputs.spreadsheet_csv import SpreadsheetCsv
from dp_pipelines.jobs.outputs.text_tables import FORMATS, CsvText, TextFormat
from dp_pipelines.jobs.spec.job_file import JobFile
from dp_pipelines.jobs.spec.job_parameters import Value
from dp_pipelines.jobs.spec.output_models import OutputsModel
from dp_pipelines.jobs.spec.validation_errors import raise_all
from dp_pipelines.report.released_table import laws_of

PARQUET = ".parquet"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outputs:
    """What a job publishes beside Parquet.

    Args:
        tables: the columns of each published table.
        files: names of text formats.
        spreadsheets: how CSV of each table is written, where the job gives it options.
        elsewhere: where extensions publish the tables, by the key of the job file.
    """

    tables: Mapping[str, pa.Schema] = dataclasses.field(default_factory=dict)
    files: tuple[str, ...] = ()
    spreadsheets: Mapping[str, SpreadsheetCsv] = dataclasses.field(default_factory=dict)
    elsewhere: Mapping[str, BoundOutput] = dataclasses.field(default_factory=dict)

    def copies(
        self, published: Mapping[str, pathlib.Path], folder: pathlib.Path, stages: Sequence[Mapping[str, Any]]
    ) -> dict[str, pathlib.Path]:
        """Write the tables of a release as text.

        Args:
            published: the staged file of each published name.
            folder: the private one, where the copies are written.
            stages: their entries in the manifest.

        Returns:
            the copy of each published name.
        """
        found, entries = {}, {str(stage.get("name")): stage for stage in stages}
        for form in self.files:
            for name in self.tables:
                made = folder / f"{name}.{form}"
                stage, table = entries.get(name, {}), published[f"{name}{PARQUET}"]
                text = self._format(form, name, stage)
                ordered = folder / f".{name}.ordered{PARQUET}"
                text.write(in_order_of_job(table, stage, ordered) if text.takes_any_order else table, made)
                ordered.unlink(missing_ok=True)
                found[made.name] = made
        return found

    def _format(self, form: str, name: str, stage: Mapping[str, Any]) -> TextFormat:
        """Return how a table is written in a format; `stage` is the entry of its stage in the manifest."""
        if form != CsvText.name or name not in self.spreadsheets:
            return FORMATS[form]
        spreadsheet = self.spreadsheets[name]
        return dataclasses.replace(spreadsheet, layout=with_laws(spreadsheet.layout, laws_of(stage)))

    def notes(self, published: Mapping[str, pathlib.Path]) -> dict[str, str]:
        """Return what a job asks for that its released rows do not allow, in words, by the name of the copy.

        Args:
            published: the staged file of each published name.
        """
        notes = {}
        for name, spreadsheet in self.spreadsheets.items():
            if why := spreadsheet.why_long(published[f"{name}{PARQUET}"]):
                notes[f"{name}.{CsvText.name}"] = f"is not wide: it {why}"
        return notes

    def refuse_place(self, place: ReleasePlace) -> None:
        """Refuse an output folder that has a table of the job in it, or is in one.

        Args:
            place: where the run is published.

        Raises:
            RequestError: as said.
        """
        for output in self.elsewhere.values():
            for name in self.tables:
                output.refuse_place(name, place)

    def refuse_unready(self, dataset: str, run_id: str) -> None:
        """Refuse a run that its tables elsewhere cannot take, or have already.

        Args:
            dataset, run_id: the run.

        Raises:
            RequestError: as said; nothing was created.
        """
        problems = []
        for output in self.elsewhere.values():
            output.needed()
            for name, schema in self.tables.items():
                try:
                    output.refuse_unready(name, schema, transaction_of(dataset, run_id))
                except RequestError as error:
                    problems.append(error)
        raise_all(problems)

    def deliver(self, release: pathlib.Path, dataset: str, run_id: str) -> None:
        """Publish the tables of a published release elsewhere too; where the run is already, nothing happens.

        Args:
            release: the published folder.
            dataset, run_id: the run.

        Raises:
            PublishError: a table could not be published; the same command tries again.
            RequestError: the packages are gone since the release was made.
        """
        for output in self.elsewhere.values():
            output.needed()
            for name in self.tables:
                output.publish(name, release / f"{name}{PARQUET}", transaction_of(dataset, run_id), run_id)

    def to_json(self, dataset: str, run_id: str) -> dict[str, Any]:
        """What a manifest says of them; nothing where the output folder is all.

        Args:
            dataset, run_id: the run.
        """
        tables, transaction = list(self.tables), transaction_of(dataset, run_id)
        return {
            name: {"tables": tables, **output.to_json(), "transaction": transaction}
            for name, output in self.elsewhere.items()
        }


def bind(
    file: JobFile, tables: Mapping[str, pa.Schema], layouts: Mapping[str, CsvLayout], values: Mapping[str, Value]
) -> Outputs:
    """What a job publishes beside Parquet.

    Args:
        file: the job.
        tables: the columns of each published table.
        layouts: which of them are what.
        values: of the parameters.

    Raises:
        RequestError: all that a format cannot hold.
    """
    said = file.job.outputs
    if said is None:
        return Outputs()
    return _checked(file, said, tables, layouts, {name: _bound(file, said, name, values) for name in said.places})


def bind_files(file: JobFile, tables: Mapping[str, pa.Schema], layouts: Mapping[str, CsvLayout]) -> Outputs:
    """Return the text files alone that a job asks for, for the tables of a release.

    Args:
        file: the job.
        tables: the columns of each table.
        layouts: which of them are what.

    Raises:
        RequestError: all that a format cannot hold.
    """
    said = file.job.outputs
    return Outputs() if said is None or said.files is None else _checked(file, said, tables, layouts, {})


def _checked(
    file: JobFile,
    said: OutputsModel,
    tables: Mapping[str, pa.Schema],
    layouts: Mapping[str, CsvLayout],
    elsewhere: Mapping[str, BoundOutput],
) -> Outputs:
    """Return what a job publishes beside Parquet. Raises: RequestError, all that a format cannot hold."""
    spreadsheets = {}
    if said.spreadsheet is not None:
        options = said.spreadsheet[1].model_dump()
        spreadsheets = {name: SpreadsheetCsv(layout=layouts[name], **options) for name in tables}
    found = Outputs(tables=dict(tables), files=said.formats, spreadsheets=spreadsheets, elsewhere=elsewhere)
    if not tables:
        message, hint = (
            "has no table to publish: the job trains models only",
            "drop it, or add a stage of kind aggregate",
        )
        raise file.error(("outputs",), RequestError(field="", message=message, hint=hint))
    raise_all([*_taken_names(file, found), *_refused(file, found), *_refused_options(file, said, found)])
    return found


def _refused(file: JobFile, outputs: Outputs) -> Iterator[RequestError]:
    """What a format cannot hold, by format, table and column."""
    for name, schema in outputs.tables.items():
        of_files = [("files", refused) for form in outputs.files for refused in FORMATS[form].refused(schema)]
        of_others = [(key, refused) for key, output in outputs.elsewhere.items() for refused in output.refused(schema)]
        for key, (column, message, hint) in (*of_files, *of_others):
            told = RequestError(field="", message=f"column {column!r} of table {name!r} {message}", hint=hint)
            yield file.error(("outputs", key), told)


def _refused_options(file: JobFile, said: OutputsModel, outputs: Outputs) -> Iterator[RequestError]:
    """What the options of CSV ask for and a table cannot have."""
    place = said.spreadsheet[0] if said.spreadsheet is not None else 0
    for name, spreadsheet in outputs.spreadsheets.items():
        for option, message, hint in spreadsheet.refused_options(outputs.tables[name]):
            error = RequestError(field="", message=f"table {name!r} {message}", hint=hint)
            yield file.error(("outputs", "files", place, CsvText.name, option), error)


def _taken_names(file: JobFile, outputs: Outputs) -> Iterator[RequestError]:
    """Text files that would have the name of a model's folder."""
    for form in outputs.files:
        for name in outputs.tables:
            for stage in file.job.stages:
                if stage.casefold() == f"{name}.{form}".casefold():
                    message = f"would have a file of the name of stage {stage!r}"
                    yield file.error(
                        ("outputs", "files"), RequestError(field="", message=message, hint="rename the stage")
                    )


def _bound(file: JobFile, said: OutputsModel, name: str, values: Mapping[str, Value]) -> BoundOutput:
    """Where an extension publishes the job's tables. Raises: RequestError."""
    output = extension_output.load(name)
    try:
        return output.bind({key: getattr(said, key) for key in output.keys.fields}, file.path.parent, values)
    except RequestError as error:
        raise error if error.field else file.error(("outputs", name), error) from None
