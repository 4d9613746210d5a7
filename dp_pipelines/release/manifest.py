"""The manifest of a release: its content and plan, the people whom the guarantee protects, and its limits.

In: public facts of a run and the staged files. Out: `manifest.json`. Holds: it has no size, digest, timing or count of the
input.
"""

import functools
import hashlib
import importlib.metadata
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from dp_pipelines.accounting.shown_costs import spent_number
from dp_pipelines.metrics import registry
from dp_pipelines.metrics.base import Metric
from dp_pipelines.planning import describe
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.row_unit import ROW, is_row_unit

FORMAT = 1

MADE_UP_FORMAT = "made-up rows"
"""The format of a report of made-up rows, so that programs do not take it for a release."""

ESTIMATES_FORMAT = "collected reports"
"""Instead, of estimates from reports of devices: no reader of central releases takes it for one."""

MADE_UP = "made-up rows: no number here is about real data, and nothing was charged"
"""The note on such a report, wherever it is shown."""

MADE_UP_TOTALS = "totals and numbers of made-up rows mean nothing: they are as large as the assumptions make them"
"""The note on its numbers, where a reader could take them for results."""

NOT_ACCOUNTED = "not accounted across runs"
"""The note of a manifest if no ledger has the run."""

NOT_COVERED = (
    "timing and side channels of the runner and its user interface",
    "raw inputs and staging folders",
    "one person under two privacy units: the losses add up",
    "public partition lists that were taken from the data",
    "other releases about the same people that share no ledger with this one",
)


def manifest(
    *,
    statement: Mapping[str, Any],
    mechanisms: Sequence[Mapping[str, Any]],
    privacy_unit: str,
    files: Mapping[str, pathlib.Path],
    run_id: str | None = None,
    params: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the manifest of staged files.

    Args:
        statement: budget and cost of the plan (`Plan.statement`).
        mechanisms: the records of one run, as JSON values.
        privacy_unit: the declared unit in words.
        files: published name and staged path of each file.
        run_id: of the run, where it has one.
        params: the parameters of the run.
    """
    return {
        "format": FORMAT,
        "run_id": run_id,
        "params": dict(params or {}),
        "plan": statement["plan"],
        "privacy_unit": privacy_unit,
        "guarantee": f"adding or removing all rows of one {privacy_unit} changes the probability of any outcome of this "
        "release by at most a factor e^epsilon, and delta",
        "budget": statement["budget"],
        "accounted": statement["accounted"],
        "accounted_one_run": statement["accounted_one_run"],
        "mechanisms": [dict(record) for record in mechanisms],
        "files": digests(files),
        "versions": {"dp_pipelines": _version("dp-pipelines"), "manifest": FORMAT},
        "ledger": {"head": None, "note": NOT_ACCOUNTED},
        "not_covered": list(NOT_COVERED),
    }


def with_looks(content: Mapping[str, Any], looks: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Return a manifest that names looks at the raw rows by which parameters may have been chosen; the same one without any.

    Args:
        content: the manifest.
        looks: each with its `date`, its `stage` and the `words` for readers.
    """
    if not looks:
        return dict(content)
    words = dict.fromkeys(look["words"] for look in looks)
    return {**content, "tuned": [dict(look) for look in looks], "not_covered": [*content["not_covered"], *words]}


def with_parties(content: Mapping[str, Any], said: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return a manifest that says which organisations have made the release together, and what is only promised.

    Args:
        content: the manifest.
        said: the entry `parties`; empty where it is one organisation.
    """
    if not said:
        return dict(content)
    return {**content, **said, "not_covered": [*content["not_covered"], *said["parties"]["words"]]}


def of_made_up_rows(content: Mapping[str, Any], assumed: Sequence[str]) -> dict[str, Any]:
    """Return a manifest of a report of made-up rows, which no reader of releases takes for one.

    Args:
        content: the manifest that a release would have.
        assumed: what is assumed of the rows, one a sentence.
    """
    nothing = {
        "format": MADE_UP_FORMAT,
        "guarantee": "none is needed: the rows are made up, and no row of the job's files was read",
        "not_covered": ["anything about real rows"],
        "synthetic": {"words": MADE_UP, "totals": MADE_UP_TOTALS, "assumed": list(assumed)},
    }
    return {**content, **nothing}


def stages_to_json(stages: Mapping[str, StagePlan]) -> list[dict[str, Any]]:
    """Describe the releases of each stage for readers of a report: columns, kinds of metrics, noise, selection.

    Args:
        stages: frozen, by name.
    """
    listed = []
    for stage in stages.values():
        described = describe.stage_to_json(stage, 1.0, None)
        del described["share"]
        described["partition_by"] = list(stage.query.published_keys)
        if stage.query.top is not None:  # the groups were chosen for their noisy numbers, which no sum of them may hide
            described["top"] = {"k": stage.query.top.k, "by": stage.query.top.by}
        for name, metric in stage.query.metrics.items():
            if name not in described["metrics"]:  # it is compared, and not published
                continue
            if metric.pools or stage.query.rollup is not None:
                raw = stage.query.released_columns(name)[2]
                entry = {key: value for key, value in described["metrics"][name].items() if key != "shrunk"}
                described["metrics"][raw] = {
                    **entry,
                    "kind": registry.name_of(metric),
                    "raw_of": name,
                    **_range(metric),
                }
            if stage.query.rollup is not None:
                described["metrics"][name]["rolled_up"] = described["metrics"][raw]["rolled_up"] = metric.rolls_up
            described["metrics"][name]["kind"] = registry.name_of(metric)
            described["metrics"][name] |= _range(metric)
            for declared in metric.declared:
                if getattr(metric, declared) is not None:
                    plain = [v if isinstance(v, (str, int, float)) else str(v) for v in getattr(metric, declared)]
                    described["metrics"][name][declared] = plain
        listed.append(described)
    return listed


def _range(metric: Metric) -> dict[str, Any]:
    """Return the declared range of a metric's published values, if it has one; scaled values have none, as it varies."""
    within = None if metric.scale is not None else metric.value_range
    return {} if within is None else {"range": list(within)}


def digests(files: Mapping[str, pathlib.Path]) -> dict[str, dict[str, str]]:
    """Return the SHA-256 of each file, by published name."""
    return {name: {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()} for name, path in sorted(files.items())}


def holds(folder: pathlib.Path, listed: Mapping[str, Any]) -> bool:
    """Return True if all files of a release are in a folder, byte for byte.

    Args:
        folder: where it was published.
        listed: as `digests` returned them.
    """
    try:
        return digests({name: folder / name for name in listed}) == listed
    except OSError:
        return False


def unit_in_words(columns: Sequence[str]) -> str:
    """Return the privacy unit as a reader understands it.

    >>> unit_in_words(["customer_id"]), unit_in_words(["customer_id", "week"]), unit_in_words(["(row)"])
    ('value of customer_id', 'combination of customer_id and week', 'row')
    """
    if is_row_unit(columns):
        return ROW
    return f"value of {columns[0]}" if len(columns) == 1 else "combination of " + " and ".join(columns)


def write_manifest(content: Mapping[str, Any], folder: pathlib.Path) -> pathlib.Path:
    """Write `manifest.json` into a staged folder."""
    path = folder / "manifest.json"
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")
    return path


def read_manifest(folder: str | pathlib.Path) -> dict[str, Any] | None:
    """Return the manifest of a published folder, or None where there is none that can be read."""
    return _read(folder, FORMAT)


def read_made_up(folder: str | pathlib.Path) -> dict[str, Any] | None:
    """Return the manifest of a report of made-up rows, or None where there is none that can be read."""
    return _read(folder, MADE_UP_FORMAT)


def read_estimates(folder: str | pathlib.Path) -> dict[str, Any] | None:
    """Return the manifest of estimates from reports of devices, or None where there is none that can be read."""
    return _read(folder, ESTIMATES_FORMAT)


def _read(folder: str | pathlib.Path, wanted: int | str) -> dict[str, Any] | None:
    try:
        content = json.loads((pathlib.Path(folder) / "manifest.json").read_text())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) and content.get("format") == wanted else None


def spent_so_far(content: Mapping[str, Any]) -> str | None:
    """Return which run of its plan a release is, and the spending of the plan's runs up to it; None without a ledger.

    Args:
        content: of a manifest; any part of it may be missing.

    >>> spent_so_far({"ledger": {"round": 2, "runs": 4, "so_far": {"epsilon": 1.8634}}, "budget": {"epsilon": 2.0}})
    'run 2 of 4; the runs so far used epsilon 1.864 of 2'
    >>> ledger = {"round": 2, "runs": 54, "spare": 2, "so_far": {"epsilon": 0.1}}
    >>> spent_so_far({"ledger": ledger, "budget": {"epsilon": 2.0}})
    'run 2 of 54, of them 2 spare; the runs so far used epsilon 0.1 of 2'
    """
    ledger, budget = content.get("ledger") or {}, content.get("budget") or {}
    if not isinstance(ledger, Mapping) or not isinstance(budget, Mapping):
        return None
    so_far, runs = ledger.get("so_far"), ledger.get("runs")
    spent, epsilon = so_far.get("epsilon") if isinstance(so_far, Mapping) else None, budget.get("epsilon")
    if not isinstance(runs, int) or runs < 2 or not isinstance(ledger.get("round"), int):
        return None
    if not all(isinstance(value, int | float) and 0 <= value < 1e300 for value in (spent, epsilon)):
        return None
    spare = ledger.get("spare")
    known = f", of them {spare} spare" if isinstance(spare, int) and 0 < spare < runs else ""
    used = f"epsilon {spent_number(spent)} of {spent_number(epsilon)}"
    return f"run {ledger['round']} of {runs}{known}; the runs so far used {used}"


@functools.cache
def _version(distribution: str) -> str:
    """Return the version of a distribution. Python parses all of its metadata for it."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
