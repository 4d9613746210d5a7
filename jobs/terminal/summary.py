"""Prints a plan before a run, and a release after it, as read back from the published folder.

In: the JSON of a plan; a published folder. Out: text. Holds: only public numbers and released rows are shown; everything shown
about a release comes from its folder.
"""

import json
import math
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TextIO

import rich.box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dp_pipelines.accounting.group_privacy import USELESS_DELTA
from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.accounting.record_kinds import kind_of
from dp_pipelines.accounting.shown_costs import left_number as left_number
from dp_pipelines.accounting.shown_costs import number as number
from dp_pipelines.accounting.shown_costs import spent_number as spent_number
from dp_pipelines.errors import RequestError
from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.jobs.terminal import output
from dp_pipelines.jobs.terminal.console import HarmlessConsole
from dp_pipelines.jobs.terminal.model_lines import print_model
from dp_pipelines.jobs.terminal.released_rows import notes_of, print_stage, shown
from dp_pipelines.metrics.error_bars import deviations_in_bar
from dp_pipelines.planning import appearing_groups, power
from dp_pipelines.query.row_unit import ROW
from dp_pipelines.report.compare_text import hidden_tables
from dp_pipelines.report.words import presented
from dp_pipelines.report.words.unit_name import counted_in, plural, unit_name

if TYPE_CHECKING:
    from dp_pipelines.planning.plan import Plan

WIDTH = 120


def console(stream: TextIO) -> Console:
    """A console that writes plain lines of a fixed width if the stream is not a terminal."""
    terminal = stream.isatty()
    return HarmlessConsole(file=stream, width=None if terminal else WIDTH, highlight=False, soft_wrap=not terminal)


def warnings_of(plan: Mapping[str, Any]) -> list[str]:
    """Return the warnings that `print_plan` prints, each with its stage: groups will hardly appear, or numbers are mostly noise.

    Args:
        plan: what `plan --json` prints.

    >>> warnings_of({"stages": [{"name": "weekly", "mostly_noise": {"words": "mostly noise: orders"}}, {"name": "total"}]})
    ['weekly: mostly noise: orders']
    """
    found = []
    for stage in plan["stages"]:
        listed = {"words": (stage.get("listed") or {}).get("warning")}
        entries = (stage.get("mostly_missing"), listed, stage.get("mostly_noise"))
        found += [f"{stage['name']}: {entry['words']}" for entry in entries if entry and entry["words"]]
    return found


def print_plan(
    plan: Mapping[str, Any], stream: TextIO, *, notes: Mapping[str, Sequence[str]] = FrozenMapping({}), account: str = "",
    of_budget: Sequence[str] = (), spare: int = 0, unit: str = "unit",
) -> None:  # fmt: skip
    """A plan as `dp-pipelines plan` shows it.

    Args:
        plan: what `plan --json` prints.
        stream: where to.
        notes: what to say of stages beside, by name.
        account: what the account has left, in words.
        of_budget: what to say of the size of the budget.
        spare: how many of the runs are for corrections.
        unit: the privacy unit, as `unit_in_words` gives it.
    """
    out, one_unit, units = console(stream), unit_name(unit), plural(unit)
    runs = plan.get("runs", 1)
    spent, one = plan["accounted"], plan["accounted_one_run"]
    out.print(
        f"budget     epsilon {spent_number(plan['epsilon'])}, delta {spent_number(plan['delta'])}"
        + _for_runs(runs, spare)
    )
    out.print(
        f"accounted  epsilon {spent_number(spent['epsilon'])}, delta {spent_number(spent['delta'])}"
        + _for_runs(runs, spare)
    )
    for words in of_budget:
        out.print(f"[bold]note:[/bold]      {escape(shown(words))}")
    if runs > 1:
        which = "one run  " if plan.get("split", "constant") == "constant" else "first run"
        out.print(f"{which}  epsilon {spent_number(one['epsilon'])}, delta {spent_number(one['delta'])}")
    if plan.get("split", "constant") != "constant" and runs > 1:
        out.print(
            f"split      {plan['split']}: the numbers below are for the first run; the last has {plan['last_round_noise']:.3g} "
            "times its noise (except for noise that a metric fixes with stddev)"
        )
    if "group" in plan:
        out.print(_of_group(plan["group"], units))
    for words in plan.get("parties", {}).get("words", []):
        out.print(f"parties    {escape(shown(words))}")
    if account:
        out.print(f"account    {escape(shown(account))}")
    for stage in plan["stages"]:
        out.print()
        share = f" · share {stage['share']:.0%}" if len(plan["stages"]) > 1 and "share" in stage else ""
        out.print(f"[bold]{escape(stage['name'])}[/bold]{share}")
        if stage.get("kept"):
            out.print(f"  {_kept(stage['kept'], units)}")
            continue
        if stage.get("compare"):
            for line in power.in_words(stage["compare"]):
                out.print(f"  {escape(shown(line))}")
            continue
        if stage["metrics"]:
            out.print(_metrics(stage["metrics"], stage.get("weighted_means", {})))
            _print_usefulness(stage, out, units)
        for sentence in stage.get("limits", []):
            out.print(f"  {escape(shown(sentence))}")
        for note in notes.get(stage["name"], ()):
            out.print(f"  [bold]note:[/bold] {escape(shown(note))}")
        for line in _clamps(stage):
            out.print(f"  {line}")
        if stage.get("choice"):
            for sentence in stage["choice"]["words"]:
                out.print(f"  {escape(shown(sentence))}")
            continue
        # Histograms by which a run chooses bounds are of no group that anyone asked for.
        if not stage.get("histograms_of"):
            out.print("  " + (_sums(stage) if "noise_multiplier" in stage else _selection(stage, units)))
        if stage.get("mostly_missing"):
            out.print(f"  [bold]warning:[/bold] {escape(shown(stage['mostly_missing']['words']))}")
        if stage.get("candidate"):
            out.print(f"  {escape(shown(stage['candidate']['words']))}")
        if stage.get("listed"):
            said = stage["listed"]
            out.print(f"  {escape(shown(said['words']))}")
            if said.get("warning"):
                out.print(f"  [bold]warning:[/bold] {escape(shown(said['warning']))}")
        if stage.get("label"):
            out.print(f"  label {escape(shown(stage['label']))}")
        if stage.get("weighting"):
            out.print(f"  evaluation: {escape(shown(stage['weighting']))}")
        for told in ("evaluation_by", "cost_of_examples", "expected_auc"):
            if stage.get(told):
                out.print(f"  {escape(shown(stage[told]['words']))}")
        if stage.get("partition_candidates"):
            listed = ", ".join(str(candidate) for candidate in stage["partition_candidates"])
            out.print(
                f"  partitions per {escape(one_unit)}: at most {listed}; each run chooses one, which sets noise and thresholds"
            )
        if stage.get("row_candidates"):
            listed = ", ".join(str(candidate) for candidate in stage["row_candidates"])
            out.print(
                f"  rows per {escape(one_unit)} and partition: at most {listed}; each run chooses one, which sets noise"
            )
        if stage.get("units_by_size"):
            counts = stage["units_by_size"]
            out.print(
                f"  numbers of {escape(units)} by what they have, by which the run chooses the limits of "
                f"{escape(shown(counts['of']))}: "
                f"numbers from {counts['units_seen_from']:,} on stand out of the noise; where none does, limits are the smallest"
            )
        if stage.get("noise_of_others_without") is not None:
            part = number(stage["noise_of_others_without"])
            out.print(f"  without this stage the noise of the others would be about {part} times what it is")
        if stage.get("mostly_noise"):
            out.print(f"  [bold]warning:[/bold] {escape(shown(stage['mostly_noise']['words']))}")
    if any(_misses_groups(stage) for stage in plan["stages"]):
        out.print()
        out.print(
            "Smaller groups are missing from the tables, whatever they hold. Larger groups (fewer columns in partition_by, "
            "longer windows), more budget or tighter bounds help; of a public list every group appears."
        )
    if any(_is_private(stage) for stage in plan["stages"]):
        out.print()
        out.print(
            "A partition just above the threshold was published because its noise was high: its count is biased upwards."
        )


WAYS = {"naive": "sum", "advanced": "advanced", "renyi": "Renyi", "pld": "privacy loss distribution"}
"""The accounting methods, with the headings of `print_explanation`."""


def print_explanation(plan: "Plan | Mapping[str, Any]", stream: TextIO) -> None:
    """What `dp-pipelines plan --explain` adds: each record, and the cost of all runs under four accounting methods.

    Args:
        plan: a plan, or what `plan --json` prints.
        stream: where to.
    """
    shown: Mapping[str, Any] = plan if isinstance(plan, Mapping) else plan.to_json()
    costs = shown["costs"]
    out = console(stream)
    out.print(
        f"epsilon of all runs at delta {number(costs['delta'])}, under four accounting methods; the last one is charged"
    )
    table = Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for way in WAYS.values():
        table.add_column(way, justify="right")
    rows = {f"{name} alone": cost for name, cost in costs["stages"].items()} if len(costs["stages"]) > 1 else {}
    for name, cost in {**rows, "all together": costs["total"]}.items():
        table.add_row(escape(name), *(spent_number(cost[way]) for way in WAYS))
    out.print(table)
    for name in dict.fromkeys(record["stage"] for record in shown["mechanisms"]):
        out.print(f"[bold]{escape(name)}[/bold] · the most one unit can change in one run")
        listed = Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
        for head in ("record", "kind", "scale", "change"):
            listed.add_column(head, justify="right" if head == "scale" else "left")
        for record in map(MechanismRecord.from_json, shown["mechanisms"]):
            if record.stage == name:
                scale = "" if record.scale is None else number(float(record.scale))
                change = kind_of(record).words(record)
                listed.add_row(escape(record.name), record.kind.replace("_", " "), scale, change)
        out.print(listed)


def _for_runs(runs: int, spare: int = 0) -> str:
    """Return for how many runs a budget is.

    >>> _for_runs(54, 2), _for_runs(52), _for_runs(1)
    (' for all 54 runs together, of them 2 spare', ' for all 52 runs together', '')
    """
    return f" for all {runs} runs together{f', of them {spare} spare' if spare else ''}" if runs > 1 else ""


def _of_group(group: Mapping[str, Any], units: str = "units") -> str:
    """Return what several units together are guaranteed.

    >>> _of_group({"units": 4, "epsilon": 4.5871, "delta": 1e-6})
    'group      4 units together: epsilon 4.588, delta 1e-06'
    >>> _of_group({"units": 100, "epsilon": 100.0, "delta": 1.0})
    'group      100 units together have no useful guarantee under this plan'
    """
    together = f"group      {group['units']} {escape(units)} together"
    if group["epsilon"] is None or group["delta"] >= USELESS_DELTA:
        return f"{together} have no useful guarantee under this plan"
    return f"{together}: epsilon {spent_number(group['epsilon'])}, delta {spent_number(group['delta'])}"


def _misses_groups(stage: Mapping[str, Any]) -> bool:
    """Return True if a stage has a table from which small groups are missing, unlike a vocabulary, which is none."""
    sizes = stage.get(appearing_groups.SIZES) or stage.get(appearing_groups.BY_BOUND)
    return bool(sizes) and "limits" in stage


def _is_private(stage: Mapping[str, Any]) -> bool:
    return (stage.get("selection") or {}).get("threshold") is not None


def _metrics(metrics: Mapping[str, Mapping[str, Any]], weighted: Mapping[str, Mapping[str, Any]]) -> Table:
    guessed = any("expected_stddev" in metric for metric in metrics.values())
    table = Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("metric")
    table.add_column("noise")
    table.add_column("standard deviation", justify="right")
    if guessed:
        table.add_column("in a typical group", justify="right")
        table.add_column("relative", justify="right")
    for name, metric in metrics.items():
        stddev = metric.get("stddev")
        shown = number(stddev) if stddev is not None else "depends on group size"
        if metric.get("stddev_multiple") is not None:
            shown = "depends on the chosen bounds"
            if "clamp" in metric:
                shown = f"{number(metric['stddev_multiple'])} times {_multiple_of(metric)}"
        shown += ", before shrinkage" if metric.get("shrunk") else ""
        cells = [escape(name), escape(str(metric["noise"])), shown]
        if guessed:
            relative = metric.get("expected_relative_error")
            cells.append(number(metric["expected_stddev"]) if "expected_stddev" in metric else "")
            cells.append(f"{relative:.1%}" if relative is not None else "")
        table.add_row(*cells)
    for name, mean in weighted.items():
        table.add_row(escape(name), escape(str(mean["noise"])), "depends on the sum of weights", *[""] * (2 * guessed))
    return table


def _print_usefulness(stage: Mapping[str, Any], out: Console, units: str) -> None:
    """Print from which size of a group on each number is good; where the run chooses bounds, the noise with some of them."""
    metrics: Mapping[str, Mapping[str, Any]] = stage["metrics"]
    every = {**metrics, **stage.get("weighted_means", {})}
    good = [(name, one["words"]) for name, metric in every.items() for one in metric.get("good_from", [])]
    open_bounds = []
    for name, metric in metrics.items():
        if words := _example(stage, metric) or metric.get("good_from_left_out"):
            open_bounds.append((name, words))
    for heading, lines in (
        ("good for 95 of 100 groups of the stated size, as far as noise goes:", good),
        ("noise that 95 of 100 numbers stay within, by the bounds that the run chooses:", open_bounds),
    ):
        if lines:
            out.print(f"  {heading}")
        for name, words in lines:
            out.print(f"    {escape(shown(name))}: {escape(counted_in(words, units))}")


def _example(stage: Mapping[str, Any], metric: Mapping[str, Any]) -> str:
    """Return the noise of a metric with two choices of the bounds that the run makes; empty where it follows from no such choice.

    >>> orders = {"noise": "gaussian", "stddev_multiple": 10.0, "grows_with": "sqrt(max_partitions_contributed)"}
    >>> _example({"partition_candidates": [1, 2, 4, 8]}, orders)
    '± 39 if the run chooses 4 partitions, ± 20 with 1'
    """
    multiple = metric.get("stddev_multiple")
    if multiple is None or "clamp" in metric:
        return ""
    bar = multiple * deviations_in_bar(metric["noise"])
    bars, usual, least = [bar, bar], [], []
    for factor in filter(None, (metric.get("grows_with") or "").split(" * ")):
        of_rows = factor == "max_contributions_per_partition"
        candidates = stage["row_candidates" if of_rows else "partition_candidates"]
        chosen = candidates[len(candidates) // 2], candidates[0]
        power = 0.5 if factor.startswith("sqrt") else 1.0
        bars = [bar * number**power for bar, number in zip(bars, chosen, strict=True)]
        usual.append(f"{chosen[0]:,} {'rows in each' if of_rows else 'partitions'}")
        least.append(f"{chosen[1]:,}")
    if "within" in metric:
        largest = max(map(abs, metric["within"]))
        bars = [bars[0] * largest, bars[1] * largest / 10]
        usual.append(f"{largest:,.12g} as the largest value")
        least.append(f"{largest / 10:,.12g}")
    return (
        f"± {_rough(bars[0])} if the run chooses {' and '.join(usual)}, ± {_rough(bars[1])} with {' and '.join(least)}"
    )


def _rough(value: float) -> str:
    """Return a positive number with two digits.

    >>> _rough(463.2), _rough(28951.0), _rough(0.0123)
    ('460', '29,000', '0.012')
    """
    rounded = float(f"{value:.1e}")
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:g}"


def _clamps(stage: Mapping[str, Any]) -> list[str]:
    """A line for each clamp that differs by partition."""
    named: dict[str, list[str]] = {}
    for name, metric in stage.get("metrics", {}).items():
        if "clamp" in metric:
            named.setdefault(str(metric["clamp"]["words"]), []).append(shown(name))
    return [
        escape(
            f"{', '.join(names)}: values are clamped to {words}, by partition; each partition's noise follows its own clamp"
        )
        for words, names in named.items()
    ]


def _sums(stage: Mapping[str, Any]) -> str:
    """Describes a stage of clipped sums."""
    noise = f"noise multiplier {number(stage['noise_multiplier'])}, times the clip norm of a unit"
    if "votes" in stage:
        return _votes(stage)
    if "held_out" not in stage and stage["coordinates"] == 1:
        return f"{stage['steps']} tests of whether teachers agree, each with {number(stage['noise_multiplier'])} votes of noise"
    if "held_out" not in stage:
        return f"one sum of {stage['coordinates']} coordinates over the training units, {noise}"
    rate = stage["sampling_rate"]
    over = "all training units" if rate == 1 else f"samples of {rate:g} of the training units"
    norm = f" ({number(stage['clip_norm'])})" if stage["clip_norm"] is not None else ""
    pairs = ", ".join(
        f"{' and '.join(escape(shown(name)) for name in pair['features'])} ({pair['columns']:,} columns)"
        for pair in stage.get("pairs", ())
    )
    crossed = f"; of {stage['features']:,} columns, pairs have: {pairs}" if pairs else ""
    if "expected_clients" in stage:
        return f"{_rounds(stage, over)}; {stage['held_out']:.0%} of the units are held out{crossed}"
    return (
        f"{stage['steps']} gradient steps of {stage['coordinates']} parameters over {over}, each with {noise}{norm}; "
        f"{stage['held_out']:.0%} of the units are held out{crossed}"
    )


def _votes(stage: Mapping[str, Any]) -> str:
    """Describes votes of teachers."""
    votes = stage["votes"]
    hints = "".join(f"; note: {hint}" for hint in votes["hints"])
    return f"{'; '.join(votes['words'])}{hints}; {stage['held_out']:.0%} of the units are held out"


def _rounds(stage: Mapping[str, Any], over: str) -> str:
    """Describes federated rounds."""
    noise, charged = stage["noise_by_round"], ""
    each = f"noise multiplier {number(noise[0])}"
    if len(set(noise)) > 1:
        each = f"noise multiplier {number(noise[0])} in the first and {number(noise[-1])} in the last ({stage['schedule']})"
    if stage["participation"] == "visible" and stage["sampling_rate"] < 1:
        charged = ", charged as if all were in each"
    if "separation" in stage:
        over = f"one of {stage['separation']} groups of the training units by turns"
        charged = f", so that a client is in at most {stage['most_rounds_of_client']}"
        each += _correlated(stage)
    return (
        f"{stage['steps']} federated rounds ({stage['method']}) of {stage['coordinates']} parameters over {over}{charged}, each "
        f"with {each}, times the clip norm of a client; sums are divided for {stage['expected_clients']:,} expected clients"
    )


def _correlated(stage: Mapping[str, Any]) -> str:
    """What the noise of rounds gains by being correlated, as more words after the noise of each."""
    gained = stage.get("error_beside_independent")
    if gained is None:
        return ""
    if stage["noise_of_rounds"] == "independent":
        return " (independent noise, since correlated noise gains nothing here)"
    return (
        f" drawn anew (correlated noise: the error of the published models is {number(gained['published_models'])} times that of "
        f"independent noise with the same clients and budget, that of the result {number(gained['result'])} times)"
    )


def _kept(kept: Mapping[str, Any], units: str) -> str:
    """Describe the stage that says what the limits of another one keep."""
    return (
        f"what the limits of {escape(shown(kept['of']))} cut off: shares of {escape(units)}, within 5 percentage points "
        f"from {math.ceil(kept['units_within_5_percent']):,} {escape(units)} on"
    )


def _multiple_of(metric: Mapping[str, Any]) -> str:
    """Return what the noise is a multiple of where bounds on values differ by partition."""
    words = {
        "max_partitions_contributed": "the partitions",
        "sqrt(max_partitions_contributed)": "the square root of the partitions",
        "max_contributions_per_partition": "the rows in each",
    }
    parts = [words[part] for part in (metric.get("grows_with") or "").split(" * ") if part]
    return " and ".join([escape(str(metric["clamp"]["noise_grows_with"])), *parts])


def _selection(stage: Mapping[str, Any], units: str) -> str:
    selection: Mapping[str, Any] = stage.get("selection") or {}
    strategy = str(selection.get("strategy", "")).replace("_", " ")
    if selection.get("total"):
        return "partitions: none; one total over everything"
    if "other" in selection:
        return (
            "partitions: the public list, and one group of all other keys, for which "
            f"{escape(shown(str(selection['other'])))} is true; each appears, whatever its size"
        )
    if strategy == "public":
        return "partitions: the public list; each of its groups appears, whatever its size"
    if "candidates" in selection:
        best = f"the best {selection['k']}" if selection["k"] > 1 else "the best one"
        text = f"partitions: {best} of {selection['candidates']} public ones by {escape(selection['by'])}, {escape(strategy)}"
        behind = f"19 times out of 20, a selection is at most {number(selection['error_95'])} behind the best"
        return f"{text}; {behind}; no values are published"
    text = f"partitions: private, {escape(strategy)}"
    if stage.get(appearing_groups.SIZES):
        text += f"; {escape(stage[appearing_groups.SIZES]['words'])}"
    elif by_bound := stage.get(appearing_groups.BY_BOUND):
        each = (f"{sizes['words']} if the run chooses {bound}" for bound, sizes in by_bound.items())
        text += f"; {escape('; '.join(each))} as the bound on partitions"
    elif selection.get("half_keep_users") is not None:
        text += f"; half of the groups of {number(math.ceil(selection['half_keep_users']))} {escape(units)} appear"
    if (selection.get("min_users") or 0) > 1:
        text += f", none of fewer than {selection['min_users']}"
    return text


def print_release(
    folder: pathlib.Path, stream: TextIO, *, again: bool = False, place: str = "", where: Sequence[str] = ()
) -> None:
    """A published release: its first rows with error bars, what was spent, where the files are.

    Args:
        folder: a published folder.
        stream: where to.
        again: whether it had been published before.
        place: what it is called; empty: as the folder is.
        where: the keys of the job file with conditions on rows.
    """
    from dp_pipelines.release.manifest import read_made_up, read_manifest, spent_so_far

    out = console(stream)
    manifest = read_manifest(folder) or read_made_up(folder) or {}
    made_up = manifest.get("synthetic") or {}
    unit = str(manifest.get("privacy_unit") or "")
    of_totals = [str(made_up["totals"])] if "totals" in made_up else []
    if made_up:
        out.print(f"[bold]{escape(str(made_up.get('words')).upper())}[/bold]")
        out.print()
    if again:
        drawn = (manifest.get("ledger") or {}).get("drawn")
        out.print(
            f"This run was already published{f' and drawn on {drawn}' if drawn else ''}; its release is unchanged."
        )
    files = sorted(manifest.get("files", {}))
    entries = {stage.get("name"): stage for stage in manifest.get("stages", [])}
    tables = {name.removesuffix(".parquet") for name in files if name.endswith(".parquet")}
    stages = sorted(tables - hidden_tables(entries))
    declared = list(entries)
    narrowed_by = [*where, *(f"{name} = {value}" for name, value in manifest.get("params", {}).items())]
    for stage in sorted(stages, key=lambda name: declared.index(name) if name in entries else len(declared)):
        table = folder / f"{stage}.parquet"
        notes, form_of = [*of_totals, *notes_of(manifest, stage)], presented.read_stage(manifest, stage).form_of
        print_stage(table, out, entries.get(stage, {}), notes, narrowed_by, form_of, unit or "unit")
    for name in files:
        if name.endswith("/evaluation.json"):
            print_model(folder / name, out, unit_name(unit))
    budget, spent = manifest.get("budget", {}), manifest.get("accounted_one_run", {})
    heading = "would cost" if made_up else "spent     "
    this_run = " in this run, out" if budget.get("runs", 1) > 1 else ""
    out.print(
        f"{heading} epsilon {spent_number(spent.get('epsilon'))}, delta {spent_number(spent.get('delta'))}{this_run} of "
        f"epsilon {spent_number(budget.get('epsilon'))}, delta {spent_number(budget.get('delta'))}"
        + _for_runs(budget.get("runs", 1), (manifest.get("ledger") or {}).get("spare", 0))
    )
    if (so_far := spent_so_far(manifest)) is not None:
        out.print(f"so far     {so_far}")
    for words in (manifest.get("parties") or {}).get("words", []):
        out.print(f"parties    {escape(shown(str(words)))}")
    for words in dict.fromkeys(str(look.get("words")) for look in manifest.get("tuned", [])):
        out.print(f"tuned      {escape(words)}")
    if made_up:
        for words in made_up.get("assumed", []):
            out.print(f"assumed    {escape(shown(str(words)))}")
        out.print(f"files      {escape(str(folder))}")
        out.print(f"[bold]{escape(str(made_up.get('words')).upper())}[/bold]")
        return
    together = "" if unit.startswith(ROW) else " (all its rows together)"
    out.print(f"protects   every {escape(unit)}{together}")
    out.print(f"run        {escape(str(manifest.get('run_id')))} · {(manifest.get('ledger') or {}).get('note', '')}")
    out.print(f"files      {escape(place or str(folder))}")
    for name, words in manifest.get("copies", {}).items():
        out.print(f"note       {escape(shown(f'{name} {words}'))}")
    for name, said in manifest.get("outputs", {}).items():
        out.print(f"{escape(shown(name)):<10} {escape(shown(', '.join(said['tables'])))}: {_delivered(name)}")


def _delivered(name: str) -> str:
    """Return what is said of tables that an extension has published outside of the output folder."""
    from dp_pipelines.jobs.spec import extension_keys  # loads pydantic, which most manifests do not need

    try:
        return extension_keys.load(extension_keys.OUTPUT, name, extension_keys.OutputKeys).delivered
    except RequestError:  # the release was published where the extension is installed
        return "published there too"


def as_json(value: Any) -> str:
    """JSON for scripts."""
    return json.dumps(value, indent=2, sort_keys=False, allow_nan=False)


class Result(Protocol):
    """What a command has written, as it may be printed."""

    @property
    def text(self) -> str:
        """Lines for people."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Return the same as JSON values."""
        ...


def print_result(result: Result, *, in_json: bool) -> None:
    """Print what a command has written; if standard output cannot be written, standard error says it.

    Args:
        result: of the command.
        in_json: whether to print JSON instead of text.
    """
    with output.printing("; ".join([*result.text.splitlines(), output.LOST])):
        print(as_json(result.to_json()) if in_json else result.text)


def release_json(folder: pathlib.Path, manifest: Mapping[str, Any], *, again: bool, place: str = "") -> dict[str, Any]:
    """What `run --json` prints; `place` is what the folder is called, if it is called otherwise."""
    names: Iterable[str] = manifest.get("files", {})
    return {
        "output": place or str(folder),
        "run_id": manifest.get("run_id"),
        "published_before": again,
        "drawn": (manifest.get("ledger") or {}).get("drawn"),
        "budget": manifest.get("budget"),
        "accounted": manifest.get("accounted"),
        "accounted_one_run": manifest.get("accounted_one_run"),
        "files": {name: f"{place}/{name}" if place else str(folder / name) for name in names},
        **{name: manifest[name] for name in ("tuned", "synthetic") if name in manifest},
    }
