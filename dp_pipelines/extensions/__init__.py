"""The table of extensions: names of the features that are packages of their own, and where each of them is.

In: a kind of feature and a name. Out: the object that does it. Holds: nothing is imported before it is asked for; a built-in
extension whose folder was deleted is not installed, and everything else works without it; no other distribution can replace a
built-in name. Not covered: what the object must offer; the protocol of its kind says so: command (`jobs.cli.extension_command`),
reader (`jobs.sources.extension_reader`), output (`jobs.outputs.extension_output`), runner (`jobs.runners.extension_runner`),
option of `run` (`jobs.cli.run_option`), job (`jobs.spec.job_kinds`), job_run (`jobs.cli.job_runs`), account
(`ledger.account_kind`), account_commands (`jobs.cli.account_commands`).
"""

import importlib
import importlib.util
import pathlib
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from dp_pipelines.errors import RequestError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

BUILT_IN = {
    "account:answers_account_opened": "dp_pipelines.extensions.local_dp.answers_rules:ANSWERS",
    "account:answers_limits_raised": "dp_pipelines.extensions.local_dp.answers_rules:ANSWERS",
    "account:estimate_admitted": "dp_pipelines.extensions.local_dp.answers_rules:ANSWERS",
    "account:people_asked": "dp_pipelines.extensions.local_dp.answers_rules:ANSWERS",
    "account_commands:answers": "dp_pipelines.extensions.local_dp.account_options:ANSWERS",
    "command:check": "dp_pipelines.extensions.check.command:CHECK",
    "command:dataflow": "dp_pipelines.extensions.dataflow.command:DATAFLOW_JOB",
    "command:describe": "dp_pipelines.extensions.describe.command:DESCRIBE",
    "command:export": "dp_pipelines.extensions.export.command:EXPORT",
    "job_run:parties": "dp_pipelines.extensions.two_organisations.job_run:PARTIES",
    "job:collected": "dp_pipelines.extensions.local_dp.job_kind:COLLECTED",
    "output:delta": "dp_pipelines.extensions.lake.formats:DELTA_TABLES",
    "reader:avro": "dp_pipelines.extensions.lake.formats:AVRO",
    "reader:delta": "dp_pipelines.extensions.lake.formats:DELTA",
    "reader:iceberg": "dp_pipelines.extensions.lake.formats:ICEBERG",
    "reader:bigquery": "dp_pipelines.extensions.lake.formats:BIGQUERY",
    "run_option:lineage": "dp_pipelines.extensions.lineage.option:LINEAGE",
    "runner:dataflow": "dp_pipelines.extensions.dataflow.runner:DATAFLOW",
    "command:sql": "dp_pipelines.extensions.sql_select.command:SQL",
    "command:tune": "dp_pipelines.extensions.tune.command:TUNE",
    "stage_key:select": "dp_pipelines.extensions.sql_select.select_stages:SELECT",
}
"""Kind and name of each feature, and its import path: a module, a colon, an attribute."""

Found = TypeVar("Found")

UPDATE = "update or uninstall its distribution"

GROUP = "dp_pipelines.extensions"
"""The group of entry points in which other distributions list their features, named as in `BUILT_IN`."""


def is_built_in(kind: str, name: str) -> bool:
    """Return True if a name belongs to a built-in extension, whether it is installed or not.

    >>> is_built_in("command", "describe"), is_built_in("command", "run")
    (True, False)
    """
    return f"{kind}:{name}" in BUILT_IN


def is_installed(kind: str, name: str) -> bool:
    """Return True if the folder of a built-in extension exists. Nothing of the extension is imported.

    Args:
        kind: of the feature.
        name: of a built-in feature.

    >>> is_installed("command", "describe")
    True
    """
    return has_folder(_extension_of(BUILT_IN[f"{kind}:{name}"]))


def has_folder(extension: str) -> bool:
    """Return True if there is a folder of an extension with this name. Nothing of it is imported.

    >>> has_folder("describe"), has_folder("no_such")
    (True, False)
    """
    spec = importlib.util.find_spec(f"{__name__}.{extension}")
    return spec is not None and spec.origin is not None  # a folder without __init__.py has a spec, but no origin


def built_in(kind: str) -> list[str]:
    """Return the names of the installed built-in features of a kind, in the order of the table.

    >>> built_in("command")
    ['check', 'dataflow', 'describe', 'export', 'sql', 'tune']
    """
    names = [name for listed_kind, _, name in (key.partition(":") for key in BUILT_IN) if listed_kind == kind]
    return [name for name in names if is_installed(kind, name)]


def third_party(kind: str) -> list[str]:
    """Return the names of the features of a kind that other distributions offer, sorted. Reads the metadata of all of them.

    A name that is built in is left out: no other distribution replaces it.
    """
    return sorted(_entry_points(kind))


def load(kind: str, name: str) -> object:
    """Return the object that offers a feature.

    Args:
        kind: of the feature.
        name: its name. Entry points are read only if it is not built in.

    Raises:
        RequestError: its extension is not installed, is not complete or cannot be imported, or there is none of this name.
    """
    if is_built_in(kind, name):
        refuse_missing(kind, name)
        module, _, attribute = BUILT_IN[f"{kind}:{name}"].partition(":")
        try:
            feature: object = getattr(importlib.import_module(module), attribute)
        except ImportError:
            message, hint = f"its extension is not complete: {module} cannot be imported", "install dp-pipelines again"
            raise RequestError(field=f"{kind} {name!r}", message=message, hint=hint) from None
        return feature
    entry_point = _entry_points(kind).get(name)
    if entry_point is None:
        raise RequestError(field=f"{kind} {name!r}", message="is not offered by any installed extension")
    try:
        loaded: object = entry_point.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # Code of others: its message may quote anything, and an end of the process is none that was asked for.
        message = f"cannot be loaded from {entry_point.value!r}: {type(error).__name__}"
        raise RequestError(field=f"{kind} {name!r}", message=message, hint=UPDATE) from None
    return loaded


def load_checked(kind: str, name: str, checked: Callable[[object], Found | None], lacks: str) -> Found:
    """Return what is needed of the object that offers a feature.

    Args:
        kind: of the feature.
        name: its name.
        checked: returns what is needed of the object, or None if it is not as its kind needs it. It may run code of the
            extension, whose errors mean the same.
        lacks: what is said of an extension whose object is not as needed, after "its extension".

    Raises:
        RequestError: as `load`, or the object is not as needed.

    >>> load_checked("command", "describe", lambda feature: getattr(feature, "example", None), "has no example")[0]
    'describe weekly.yaml'
    """
    feature = load(kind, name)
    try:
        found = checked(feature)
    except KeyboardInterrupt:
        raise
    except BaseException:  # code of others, as above
        found = None
    if found is None:
        raise RequestError(field=f"{kind} {name!r}", message=f"its extension {lacks}", hint=UPDATE)
    return found


def refuse_missing(kind: str, name: str) -> None:
    """Refuse a built-in feature whose extension is not installed.

    Args:
        kind: of the feature.
        name: its name. Names that are not built in pass.

    Raises:
        RequestError: the folder of the extension does not exist.
    """
    if is_built_in(kind, name) and not is_installed(kind, name):
        raise _missing(f"{kind} {name!r}", _extension_of(BUILT_IN[f"{kind}:{name}"]))


def refuse_missing_name(name: str, module: str) -> None:
    """Refuse a public name of Python whose extension is not installed.

    Args:
        name: as `dp_pipelines` or `dp_pipelines.transforms` offers it. Names of the core pass.
        module: where it is defined, under `dp_pipelines`.

    Raises:
        ImportError: the folder of the extension does not exist.

    >>> refuse_missing_name("Plan", "planning.plan")
    >>> refuse_missing_name("Toy", "extensions.no_such.toy")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ImportError: name 'Toy': needs the extension 'no_such', which is not installed; install ...
    """
    extension = _extension_of(f"dp_pipelines.{module}")
    if extension and not has_folder(extension):
        raise ImportError(str(_missing(f"name {name!r}", extension)))


def installed_names(modules: Mapping[str, str]) -> list[str]:
    """Return the public names of a facade without those of extensions that are not installed, in their order.

    Args:
        modules: for each name, where it is defined, as for `refuse_missing_name`.

    >>> installed_names({"Plan": "planning.plan", "Blocks": "extensions.sample_and_aggregate.blocks", "X": "extensions.x"})
    ['Plan', 'Blocks']
    """
    extensions = {name: _extension_of(f"dp_pipelines.{module}") for name, module in modules.items()}
    return [name for name, extension in extensions.items() if not extension or has_folder(extension)]


def _extension_of(path: str) -> str:
    """Return the extension that an import path is in, by its folder; nothing for the core."""
    below = path.removeprefix(f"{__name__}.")
    return below.partition(".")[0] if below != path else ""


def _missing(field: str, extension: str) -> RequestError:
    """Return the error about a feature whose extension is not installed."""
    message = f"needs the extension {extension!r}, which is not installed"
    hint = f"install a distribution of dp-pipelines that has the package {__name__}.{extension}"
    return RequestError(field=field, message=message, hint=hint)


def _entry_points(kind: str) -> "dict[str, EntryPoint]":
    """Return the entry points of a kind by name, less those of built-in names."""
    if not _is_listed():
        return {}
    import importlib.metadata  # slow, and not needed for a built-in name

    entry_points = {}
    for entry_point in importlib.metadata.entry_points(group=GROUP):
        listed_kind, _, name = entry_point.name.partition(":")
        if listed_kind == kind and name and not is_built_in(kind, name):
            entry_points[name] = entry_point
    return entry_points


def _is_listed() -> bool:
    """Return False if no distribution lists features in the folders of the import path.

    To look for the name of the group in their files of entry points takes a fraction of the time of `importlib.metadata`, which
    parses all of them. It reads archives too: where there are some, or a file cannot be read, the answer is True.
    """
    folders = [pathlib.Path(place or ".") for place in sys.path]
    if any(folder.is_file() for folder in folders):
        return True
    try:
        return any(
            GROUP.encode() in path.read_bytes() for folder in folders for path in folder.glob("*/entry_points.txt")
        )
    except OSError:
        return True
