"""The report: one page that shows a release to its readers and says what it protects and what it does not.

In: the content of a manifest (any part of it may be missing) and the published files of its stages. Out: HTML. Holds: one
file that fetches nothing (its own content policy forbids it) and needs no script; every text of a key or a manifest is made
visible and escaped; the same input gives the same bytes; nothing in it but the released tables and public facts. Not
covered: whether the manifest is true.
"""

import dataclasses
import math
import pathlib
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from dp_pipelines.accounting.group_privacy import group_guarantee
from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.errors import RequestError
from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.release.manifest import spent_so_far
from dp_pipelines.report.attack_odds import example, factor, one_in
from dp_pipelines.report.compare_text import hidden_tables
from dp_pipelines.report.model_section import model_section
from dp_pipelines.report.numbers import cost_number, public_number
from dp_pipelines.report.pages import amount, document, mapping, mappings, meters, sequence, text
from dp_pipelines.report.range_text import NOT_MEASURED
from dp_pipelines.report.stage_section import stage_section
from dp_pipelines.report.words import headline, presented
from dp_pipelines.report.words.limit_words import limit_sentences, no_total_words
from dp_pipelines.report.words.page_words import subject_words
from dp_pipelines.report.words.presented import Presented
from dp_pipelines.report.words.unit_name import plural, unit_name

LAWS = {
    "gaussian": "normal (Gaussian) noise",
    "laplace": "Laplace noise",
    "approximate_dp": "random choice",
    "bounded_range": "random choice",
    "delta": "chance of failure",
}

HOUSEHOLD = 4
"""The size of the group whose guarantee the page states."""

OF_MADE_UP_ROWS = "Of made-up rows: this number means nothing"

SMOOTH = "Laplace noise by smooth sensitivity"
"""Instead, of a record whose name says that it is a median with such noise."""


def render(
    content: Mapping[str, Any],
    tables: Mapping[str, pathlib.Path],
    models: Mapping[str, pathlib.Path] = FrozenMapping({}),
) -> str:
    """The page of a release.

    Args:
        content: the manifest, and `dataset`; any part of it may be missing.
        tables: the published Parquet file of each stage that has one.
        models: the folder of each train stage.

    Returns:
        An HTML document.

    Raises:
        OSError, pyarrow.ArrowException: a table cannot be read.

    >>> page = render({"dataset": "<b>tea", "run_id": "2026-W01"}, {})
    >>> "<title>&lt;b&gt;tea: private release 2026-W01</title>" in page
    True
    """
    unit = text(content.get("privacy_unit"))
    described = {text(stage.get("name")): stage for stage in mappings(content.get("stages"))}
    listed = [name for name in described if name]
    tables = {name: path for name, path in tables.items() if name not in hidden_tables(described)}
    before = mapping(mapping(content.get("ledger")).get("before"))
    params = mapping(content.get("params"))
    names = [*listed, *sorted(name for name in {*tables, *models} if name not in described)]
    stages = [
        model_section(
            name, models[name], unit_name(unit), text(mapping(mapping(content.get("models")).get(name)).get("label"))
        )
        if name in models
        else _section(
            name, described.get(name, {}), tables.get(name), unit, before, presented.read_stage(content, name), params
        )
        for name in names
    ]
    renamed = {
        name: presented.renamed_stage(one, presented.read_stage(content, name).labels)
        for name, one in described.items()
    }
    for stage in stages:
        told = presented.read_stage(content, stage["name"])
        stage |= {"title": told.title or stage["name"], "description": told.description}
        stage |= {"no_total": no_total_words(stage["name"], renamed, unit)}
    _drop_repeated(stages)
    title, description = presented.read_title(content)
    run_id = text(content.get("run_id"))
    return document(
        "report.html.j2",
        title=title or text(content.get("dataset")) or "Private release",
        description=description,
        run_id=run_id,
        run_name="" if headline.MADE_RUN_ID.fullmatch(run_id) else run_id,
        drawn=text(mapping(content.get("ledger")).get("drawn")),
        subject=subject_words(stages),
        params=sorted((str(name), text(value)) for name, value in params.items()),
        unit=unit_name(unit),
        units=plural(unit),
        exact_unit=unit or "privacy unit",
        so_far=spent_so_far(content),
        made_up=text(mapping(content.get("synthetic")).get("words")),
        assumed=[text(item) for item in sequence(mapping(content.get("synthetic")).get("assumed"))],
        headlines=_headlines(stages, made_up=bool(content.get("synthetic"))),
        stages=stages,
        limited=_limited(stages, renamed, unit),
        budget=_budget(content),
        ledger=_ledger(mapping(content.get("ledger"))),
        tuned=list(dict.fromkeys(text(look.get("words")) for look in mappings(content.get("tuned")))),
        not_covered=[text(item) for item in sequence(content.get("not_covered"))],
        guarantee=text(content.get("guarantee")),
        mechanisms=[_mechanism(record) for record in mappings(content.get("mechanisms"))],
        plan=text(content.get("plan")),
        job=text(content.get("job")),
        versions=sorted((str(name), text(value)) for name, value in mapping(content.get("versions")).items()),
    )


def _headlines(stages: Sequence[Mapping[str, Any]], *, made_up: bool) -> list[headline.Headline]:
    """Return the numbers at the top of the page. Those of made-up rows say nothing of a true number, and that alone is noted."""
    found = headline.first(one for stage in stages for one in stage.get("headlines", []))
    return [dataclasses.replace(one, notes=(OF_MADE_UP_ROWS,)) for one in found] if made_up else found


def _drop_repeated(stages: Sequence[Mapping[str, Any]]) -> None:
    """Leave out charts of sums over groups where another stage has a chart of the same metric by the same time alone."""
    plots = [plot for stage in stages for plot in stage.get("plots", [])]
    alone = {(plot["metric"], plot["time"]) for plot in plots if plot["series"] and not plot["others"]}
    for plot in plots:
        if (plot["metric"], plot["time"]) in alone:
            plot["together"] = None


def _limited(
    stages: Sequence[Mapping[str, Any]], described: Mapping[str, Mapping[str, Any]], unit: str
) -> list[dict[str, Any]]:
    """What each stage limits, and whether it was measured how much that cuts off."""
    found = []
    for stage in stages:
        entry = described.get(stage["name"], {})
        said = limit_sentences(entry, unit)
        if said:
            unmeasured = NOT_MEASURED not in said and not mapping(entry.get("kept"))
            found.append({"title": stage["title"], "sentences": said, "unmeasured": unmeasured})
    return found


def _section(
    name: str,
    stage: Mapping[str, Any],
    path: pathlib.Path | None,
    unit: str,
    before: Mapping[str, Any],
    shown: Presented,
    params: Mapping[str, Any],
) -> dict[str, Any]:
    with np.errstate(all="ignore"):  # what overflows becomes infinite, and what is infinite is not shown
        return stage_section(name, stage, path, unit, before, shown, params)


def _budget(content: Mapping[str, Any]) -> dict[str, Any]:
    asked, total = mapping(content.get("budget")), mapping(content.get("accounted"))
    once = mapping(content.get("accounted_one_run")) or total
    runs = asked.get("runs")
    epsilon, delta = amount(once.get("epsilon")), amount(once.get("delta"))
    all_epsilon = amount(total.get("epsilon"))
    return {
        "runs": runs if isinstance(runs, int) and runs > 1 else 1,
        "rows": [
            {"words": words, "epsilon": cost_number(of.get("epsilon")), "delta": cost_number(of.get("delta"))}
            for words, of in (
                ("This run, as computed", once),
                ("All runs of this plan together, as computed", total),
                ("Budget in the job file, for all runs", asked),
            )
            if of
        ],
        "epsilon": cost_number(epsilon),
        "delta": cost_number(delta),
        "factor": factor(epsilon),
        "factor_all": factor(all_epsilon),
        "one_in": one_in(delta),
        "example": example(epsilon, delta),
        "example_all": example(all_epsilon, amount(total.get("delta"))),
        "group": _group(content, epsilon, delta),
    }


def _group(content: Mapping[str, Any], epsilon: float | None, delta: float | None) -> dict[str, Any] | None:
    """What this run guarantees for a household, from its records; None if the manifest does not tell."""
    try:
        records = [MechanismRecord.from_json(record) for record in content.get("mechanisms") or []]
        if not records or epsilon is None or delta is None:
            return None
        group = group_guarantee([(records, 1)], units=HOUSEHOLD, epsilon=epsilon, delta=delta)
    except (RequestError, TypeError):
        return None
    if not group.useful:
        return {"units": group.units, "epsilon": None, "delta": None}
    return {"units": group.units, "epsilon": cost_number(group.epsilon), "delta": cost_number(group.delta)}


def _ledger(ledger: Mapping[str, Any]) -> dict[str, Any]:
    head = mapping(ledger.get("head"))
    whole = {name: ledger[name] for name in ("round", "runs") if isinstance(ledger.get(name), int)}
    return {
        "kept": bool(head),
        "account": text(ledger.get("account")),
        "id": text(ledger.get("id")),
        "rule": text(ledger.get("rule")),
        "round": whole.get("round"),
        "runs": whole.get("runs"),
        "window": text(ledger.get("window")),
        "note": text(ledger.get("note")),
        "seq": text(head.get("seq")),
        "hash": text(head.get("hash")),
        "meters": meters(ledger, rule=text(ledger.get("rule"))),
    }


def _mechanism(record: Mapping[str, Any]) -> dict[str, str]:
    """A record as a row: what gets noise, how much, and what one unit can change."""
    scale, square = _fraction(record.get("scale")), _fraction(record.get("l2_squared"))
    total, each = _fraction(record.get("l1")), _fraction(record.get("linf"))
    most = math.sqrt(square) if square is not None else float(total) if total is not None else None
    change = "-" if most is None else public_number(most) + (" (L2)" if square is not None else " (L1)")
    if each is not None:
        change += f", {public_number(float(each))} each"
    if record.get("delta") is not None or record.get("epsilon") is not None:
        change = f"epsilon {cost_number(record.get('epsilon', 0))}, delta {cost_number(record.get('delta', 0))}"
    kind, name = text(record.get("kind")), text(record.get("name"))
    return {
        "stage": text(record.get("stage")),
        "name": name,
        "law": SMOOTH if name.startswith("smooth_median(") else LAWS.get(kind, kind),
        "scale": "-" if scale is None else public_number(float(scale)),
        "change": change,
        "places": public_number(record.get("l0")),
        "ratio": "-" if scale is None or not most else public_number(float(scale) / most),
    }


def _fraction(value: Any) -> Fraction | None:
    """A record's number: whole, or text such as 1028/1."""
    try:
        found = Fraction(value) if isinstance(value, int | str) else None
        return found if found is None or 0 <= float(found) < 1e300 else None
    except (ValueError, ZeroDivisionError, OverflowError):
        return None
