"""A published folder as a program or a notebook reads it: its tables with error bars, its manifest, its models.

In: a folder that `dp-pipelines run` or a session has published. Out: tables of Arrow, pandas and Polars; models. Holds: files
that are not those of the manifest are refused; only the folder is read, so it costs nothing. Not covered: several runs as a
series (`dp-pipelines report`).
"""

import json
import os
import pathlib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, overload

from markupsafe import escape

from dp_pipelines.engine import object_store
from dp_pipelines.errors import RequestError, nearest
from dp_pipelines.jobs.session.result import ReleaseTable
from dp_pipelines.report.key_text import visible
from dp_pipelines.report.models import model_verdict
from dp_pipelines.report.pages import text
from dp_pipelines.report.trends.published_runs import read_run
from dp_pipelines.report.words.unit_name import unit_name

if TYPE_CHECKING:
    from dp_pipelines.training.artefact import Artefact

Default = TypeVar("Default")


class ReleasedModel:
    """A model of a release.

    Args:
        name: of the stage.
        folder: `model.safetensors`, `model.json` and `evaluation.json`; `dp-pipelines predict` takes it.
        unit: what one privacy unit is called.
    """

    def __init__(self, name: str, folder: pathlib.Path, unit: str) -> None:
        self.name, self.folder, self._unit = name, folder, unit

    @property
    def description(self) -> dict[str, Any]:
        """What `model.json` says: features, label, sizes."""
        return self._read("model.json")

    @property
    def measures(self) -> dict[str, Any]:
        """The measures on held-out units, each with its error bars; empty if the release has none."""
        found: dict[str, Any] = self._read("evaluation.json").get("measures", {})
        return found

    @property
    def verdict(self) -> tuple[str, ...]:
        """Whether the model does more than its best feature, chance or a constant answer, in the sentences of its page.

        Empty where the release has no evaluation, or its counts do not stand out of their noise.
        """
        return tuple(model_verdict.lines(self._read("evaluation.json"), self._read("model.json"), self._unit))

    def load(self) -> "Artefact":
        """Return the model itself, which predicts: `load().predict(examples)`.

        Raises:
            RequestError: its files are damaged.
        """
        from dp_pipelines.training import artefact

        return artefact.load(self.folder)

    def _read(self, name: str) -> dict[str, Any]:
        path = self.folder / name
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return found

    def __repr__(self) -> str:
        """The name and where it is."""
        return f"model {self.name} in {self.folder}"


class StoredRelease(Mapping[str, ReleaseTable]):
    """A published release: a mapping from the names of its stages to their tables. Made by `read_release`.

    Args:
        folder: where it is.
        manifest: what its manifest says.
        tables: by stage.
        models: by stage.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        manifest: Mapping[str, Any],
        tables: Mapping[str, ReleaseTable],
        models: Mapping[str, ReleasedModel],
    ) -> None:
        self.folder, self.manifest, self.tables, self.models = folder, manifest, dict(tables), dict(models)

    def __getitem__(self, name: str) -> ReleaseTable:
        """Return the table of a stage. Raises: RequestError: there is none of this name."""
        if name not in self.tables:
            hint = nearest(name, list(self.tables), "tables") or f"there are: {', '.join(self.tables) or 'no tables'}"
            raise RequestError(field=f"table {name!r}", message="is not in this release", hint=hint)
        return self.tables[name]

    @overload
    def get(self, name: str, /) -> ReleaseTable | None: ...

    @overload
    def get(self, name: str, /, default: Default) -> ReleaseTable | Default: ...

    def get(self, name: str, /, default: Any = None) -> Any:
        """Return the table of a stage, or a default if there is none of this name.

        Args:
            name: of the stage.
            default: what is returned otherwise.
        """
        return self.tables.get(name, default)

    def __contains__(self, name: object) -> bool:
        """Return True if a stage has a table."""
        return name in self.tables

    def __iter__(self) -> Any:
        """The names of the stages that have a table."""
        return iter(self.tables)

    def __len__(self) -> int:
        """How many tables there are."""
        return len(self.tables)

    @property
    def run_id(self) -> str:
        """The name of the run."""
        return str(self.manifest.get("run_id"))

    def __repr__(self) -> str:
        """All tables with error bars, and where the models are."""
        return "\n\n".join(repr(part) for part in (*self.tables.values(), *self.models.values()))

    def _repr_html_(self) -> str:
        models = [f"<div>{escape(repr(model))}</div>" for model in self.models.values()]
        return "".join([*(table._repr_html_() for table in self.tables.values()), *models])


def read_release(folder: str | os.PathLike[str]) -> StoredRelease:
    """Read a published folder: its tables, its manifest and its models. Costs nothing.

    `read_release("out/2026-W01")["weekly"].to_pandas()` is the table of the stage `weekly`.

    Args:
        folder: of this machine, that `dp-pipelines run` or a session has published.

    Raises:
        RequestError: it holds no release, or its files are not those that its manifest names.
    """
    if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*://", os.fspath(folder)):
        shown = object_store.without_credentials(os.fspath(folder))
        message, hint = "is a URL, and only folders of this machine are read", "copy the folder, and name the copy"
        raise RequestError(field=f"folder {visible(shown)!r}", message=message, hint=hint)
    run = read_run(pathlib.Path(folder))
    tables = {
        name: ReleaseTable(name=name, folder=run.folder, manifest=run.content)
        for name in _described(run.content, run.tables)
    }
    unit = unit_name(text(run.content.get("privacy_unit")))
    models = {name: ReleasedModel(name, path, unit) for name, path in run.models.items()}
    return StoredRelease(run.folder, run.content, tables, models)


def _described(content: Mapping[str, Any], tables: Mapping[str, pathlib.Path]) -> list[str]:
    """Return the stages that have a table, in the order of the job."""
    return [entry["name"] for entry in content["stages"] if entry["name"] in tables]
