"""Guards near rows catch every error, of whatever class, and conversions of rows are settled by types, not tried.

In: the source. Out: handlers that let errors pass which quote rows, that swallow a real interrupt, and conversions inside `try`.
Holds: each exception from a rule is listed with its reason. Not covered: what a handler does otherwise.
"""

import ast
import functools
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from dp_pipelines import interrupts
from tests.helpers.extension_folders import is_of_deleted

ROOT = pathlib.Path(__file__).parents[2]
FOLDERS = ("dp_pipelines", "transforms", "jobs")

WITHOUT_ROWS = {
    "dp_pipelines/training/gaussian_noise.py:_loop": "compiles code for noise",
    "dp_pipelines/training/kernels/compiled.py": "reads and writes compiled code in a cache",
    "dp_pipelines/training/kernels/jax_model.py": "tries somebody's code on rows of zeros",
    "dp_pipelines/training/scoring.py:own_code": "imports somebody's code",
    "jobs/beam_yaml/expansion.py:Expand": "decodes a request, before any row is read",
    "jobs/beam_yaml/run_pipeline.py": "expands transforms, before any row is read",
    "jobs/cli/shown_run.py:print_run": "shows what is published already",
    "dp_pipelines/extensions/lake/delta_output.py": "writes what is released already",
    "dp_pipelines/extensions/lake/delta_place.py": "looks at a table of released rows",
    "jobs/request/own_models.py": "tries somebody's code on rows of zeros",
    "dp_pipelines/extensions/dataflow/bucket_staging.py": "destroys staged files, by name",
    "jobs/runners/beam_engine.py": "asks engines to cancel, and validates options",
    "jobs/runners/canary.py": "runs numbers through an engine",
    "jobs/runners/cluster_watch.py": "asks a cluster how it is",
    "jobs/runners/orphaned_jobs.py": "asks a cluster to cancel",
    "dp_pipelines/extensions/lake/avro_files.py:header_of": "reads headers of blocks, before any row is read",
    "dp_pipelines/extensions/lake/avro_files.py:codec_is_known": "looks for a codec's library",
    "dp_pipelines/extensions/lake/delta_table.py": "reads a table's metadata",
    "dp_pipelines/extensions/lake/iceberg_table.py": "reads a table's metadata",
    "jobs/sources/tables.py:_type_of": "converts a column without rows",
    "dp_pipelines/extensions/lake/storage_api.py:session": "asks for a schema",
    "jobs/sql/trial_expressions.py:_tried": "evaluates expressions over constants, for the doctor",
    "transforms/pipeline_dp/extract.py:_refuse_by_hint": "asks a function for its hints, before any row is read",
    "transforms/rows/cell_values.py:why_null": "looks at a cell of an invented row",
    "transforms/rows/row_check.py:_checked": "looks at an invented row",
    "transforms/rows/row_check.py:_text_of": "writes a value of an invented row",
    "jobs/stores/object_folder.py": "asks a store for names and released bytes",
    "jobs/stores/remote_files.py": "asks a store for names and sizes",
}
"""Handlers of `Exception` alone, by module or module and function, and why no row is in memory there."""

PASSED_ON = {
    "dp_pipelines/ledger/journal.py:write": "rolls back, and raises the error or one of the ledger",
    "jobs/runners/workers.py:_work": "hands every error to the thread that waits, which guards it",
    "jobs/cli/main.py:_ended": "is the last guard of a command, and ends it",
    "dp_pipelines/extensions/__init__.py:load": "imports a command of another distribution, before any row is read",
    "dp_pipelines/extensions/__init__.py:load_checked": "asks a feature of others what it offers, before any row is read",
}
"""Handlers of `BaseException` that neither ask whether a signal came nor raise the error again."""

TRIED = {
    "dp_pipelines/kernels/columns/column_casts.py:column": "objects; halves until one is alone, so a value affects no other",
    "dp_pipelines/kernels/columns/column_types.py:arrow_values": "public keys",
    "dp_pipelines/kernels/columns/column_types.py:column_of_kind": "public keys",
    "dp_pipelines/kernels/columns/csv_cells.py:text_as": "text; those that fail are parsed cell by cell, to the same values",
    "dp_pipelines/kernels/columns/csv_cells.py:_times": "the same",
    "dp_pipelines/kernels/columns/csv_cells.py:text_of": "the same",
    "dp_pipelines/kernels/columns/csv_cells.py:_converted": "the same: halves until one is alone",
    "jobs/sources/tables.py:_converted": "a column of a frame; else cell by cell, to the same values",
    "jobs/sources/tables.py:_type_of": "a column without rows",
    "jobs/sql/dry_run.py:_sample": "an invented value",
    "transforms/pipeline_dp/extract.py:_numbers": "numbers of Python; else one by one, to the same values",
    "transforms/pipeline_dp/keys.py:_column": "values of Python; else one by one, to the same bytes",
    "dp_pipelines/extensions/lake/bigquery_table.py:process": "to the types of the session's own schema, which all values have",
}
"""Conversions inside `try`, and why no row decides what becomes of another."""

NARROW = {
    "dp_pipelines/kernels/columns/column_types.py": "public keys",
    "dp_pipelines/kernels/columns/csv_cells.py": "text that does not fit; all else is masked where the pipeline ends",
    "dp_pipelines/kernels/columns/csv_format.py": "names of encodings and texts of a job file",
    "dp_pipelines/kernels/columns/csv_lines.py:header": "the header, which is public",
    "dp_pipelines/kernels/columns/dictionary_page.py:_unpacked": "a page that cannot be unpacked is read by Arrow, which says so",
    "dp_pipelines/kernels/columns/gather.py:_one_dictionary": "dictionaries that Arrow cannot join are decoded",
    "dp_pipelines/kernels/columns/listed_keys.py:_as_arrow": "public keys",
    "dp_pipelines/kernels/keys.py:_is_valid": "what Arrow says of text that is not UTF-8, and nothing else of text",
    "dp_pipelines/extensions/sample_and_aggregate/blocks.py": "about a child process, and a function before any row is read",
    "dp_pipelines/engine/object_store.py": "asks a store for names and sizes",
    "dp_pipelines/steps/read_files.py": "names the damaged file; all else is masked where the pipeline ends",
    "dp_pipelines/steps/row_bytes.py:of_type": "asks a type for its width",
    "dp_pipelines/extensions/lake/delta_output.py": "writes what is released already",
    "dp_pipelines/extensions/lake/delta_place.py": "looks at a table of released rows",
    "dp_pipelines/extensions/lake/models.py:instant": "text of a job file",
    "dp_pipelines/extensions/lake/avro_files.py:_by_polars": "raises it again; the handler after it takes all others",
    "dp_pipelines/extensions/lake/avro_files.py:_header": "reads headers of blocks, before any row is read",
    "jobs/sources/json_lines.py:process": "names the damaged file; all else is masked where the pipeline ends",
    "jobs/sources/key_lists.py": "public keys",
    "jobs/sources/late_pandas.py": "looks for a package",
    "jobs/sources/own_cache.py:is_own": "asks the system about a folder",
    "jobs/sources/public_tables.py": "public tables",
    "jobs/sources/source_files.py": "reads headers and footers, before any row is read",
    "dp_pipelines/extensions/lake/bigquery_table.py:_width": "asks a type for its width",
    "dp_pipelines/extensions/lake/bigquery_table.py:process": "names the table; all else is masked where the pipeline ends",
    "jobs/sql/comparisons.py:number": "evaluates a constant of a job file",
    "jobs/sql/dry_run.py": "evaluates over invented values",
    "jobs/sql/expressions.py": "parses text of a job file",
    "jobs/sql/row_calculator.py:_is_valid": "what Arrow says of a value that breaks the rules of its type",
    "jobs/sql/row_calculator.py:_valid": "the same",
    "jobs/sql/row_calculator.py:checking_connection": "asks a connection over which no row of a source goes",
    "jobs/sql/row_calculator.py:connection": "takes a connection from a list that may be empty",
    "jobs/sql/whitelist.py:check": "parses text of a job file",
    "jobs/sql/windows": "parses text of a job file",
    "transforms/pipeline_dp/extract.py:_number": "a number of Python that float64 does not have",
    "transforms/pipeline_dp/keys.py": "a key of Python whose class has no such value; a step around it takes all others",
    "transforms/pipeline_dp/metrics.py:_public": "public values",
    "transforms/rows/time_cells.py:_of_iso": "text of one cell that is no date",
    "transforms/rows/row_check.py": "looks at an invented row",
    "transforms/rows/schema_rows.py": "one cell, whose class has no such value; types before any row is read",
    "transforms/rows/to_tables.py:_of_series": "a column of numbers or times; else cell by cell, to the same values",
}
"""Near rows: handlers of some errors alone, by folder, module or module and function, and why others may pass."""

CONVERTS = ("cast", "to_numpy", "fill_null", "view", "dictionary_encode", "take")
"""Methods of Arrow that convert, beside `pa.array` and all functions of `pc`."""

NEAR_ROWS = (
    "dp_pipelines/kernels/",
    "dp_pipelines/engine/",
    "dp_pipelines/steps/",
    "dp_pipelines/extensions/lake/",
    "dp_pipelines/extensions/sample_and_aggregate/",
    "jobs/sources/",
    "jobs/sql/",
    "transforms/",
)
"""Folders whose code has rows in its hands; handlers of less than `Exception` are looked at there."""

OURS = {"RequestError", "JobErrors", "DpError", "WrongOrder", "keys.NoKeyError", "NoFitError", "PublishError", "WarehouseError",
        "object_store.StoreError", "ImportError"}  # fmt: skip
"""Errors of ours, which quote nothing and which nobody else raises; and that a package is missing."""


Rule = Callable[[str, ast.Module], Iterator[str]]


@functools.cache
def breaches() -> dict[Rule, set[str]]:
    """Return what breaks each rule, in all modules, each of which is parsed once."""
    found: dict[Rule, set[str]] = {rule: set() for rule in (too_narrow, narrower, swallowing, enclosing, tried)}
    for folder in FOLDERS:
        for file in (ROOT / folder).rglob("*.py"):
            path, tree = str(file.relative_to(ROOT)), ast.parse(file.read_text(encoding="utf-8"))
            for rule, places in found.items():
                if path.startswith(NEAR_ROWS) or rule not in (narrower, tried):
                    places.update(rule(path, tree))
    return found


def within(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """All nodes, with the name of the function that they are in."""
    waiting = [("", tree)]
    while waiting:
        name, outer = waiting.pop()
        for node in ast.iter_child_nodes(outer):
            inner = node.name if isinstance(node, ast.FunctionDef) else name
            waiting.append((inner, node))
            yield inner, node


def _names(node: ast.expr | None) -> set[str]:
    """The classes that a handler catches, as they are written."""
    if node is None:
        return {"BaseException"}
    return set(map(ast.unparse, node.elts if isinstance(node, ast.Tuple) else [node]))


def _caught(node: ast.AST) -> set[str]:
    """The classes that a handler or `suppress` catches."""
    if isinstance(node, ast.ExceptHandler):
        return _names(node.type)
    if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "suppress":
        return set[str]().union(*map(_names, node.args))
    return set()


def too_narrow(path: str, tree: ast.Module) -> Iterator[str]:
    """Handlers of `Exception` that let `BaseException` pass, by module and function."""
    for name, node in within(tree):
        if "Exception" in _caught(node):
            yield f"{path}:{name}"


def narrower(path: str, tree: ast.Module) -> Iterator[str]:
    """Handlers of some errors alone, which others pass, by module and function; but for those of our own errors."""
    for name, node in within(tree):
        caught = _caught(node)
        if caught - OURS and not caught & {"Exception", "BaseException"}:
            yield f"{path}:{name}"


def swallowing(path: str, tree: ast.Module) -> Iterator[str]:
    """Handlers of `BaseException` that go on although a signal came."""
    for name, node in within(tree):
        if isinstance(node, ast.ExceptHandler) and "BaseException" in _names(node.type):
            asks = any(
                isinstance(part, ast.Call) and ast.unparse(part.func) == "interrupts.end_if_asked"
                for part in ast.walk(node)
            )
            last = node.body[-1]
            if not asks and not (isinstance(last, ast.Raise) and last.exc is None):
                yield f"{path}:{name}"


def enclosing(path: str, tree: ast.Module) -> Iterator[str]:
    """Handlers of `BaseException` around a `yield` of a generator: whoever closes it would raise their error."""
    for name, node in within(tree):
        if isinstance(node, ast.FunctionDef) and "contextlib.contextmanager" not in map(
            ast.unparse, node.decorator_list
        ):
            for part in ast.walk(node):
                if isinstance(part, ast.Try | ast.TryStar) and any(
                    "BaseException" in _names(one.type) for one in part.handlers
                ):
                    inside = (inner for line in part.body for inner in ast.walk(line))
                    if any(isinstance(inner, ast.Yield | ast.YieldFrom) for inner in inside):
                        yield f"{path}:{name}"


def tried(path: str, tree: ast.Module) -> Iterator[str]:
    """Conversions of Arrow inside a `try` that catches something."""
    for name, node in within(tree):
        if isinstance(node, ast.Try | ast.TryStar) and node.handlers:
            calls = (part for line in node.body for part in ast.walk(line) if isinstance(part, ast.Call))
            if any(isinstance(call.func, ast.Attribute) and _converts(call) for call in calls):
                yield f"{path}:{name}"


def _converts(call: ast.Call) -> bool:
    assert isinstance(call.func, ast.Attribute)
    of = ast.unparse(call.func.value)
    return call.func.attr in CONVERTS or of == "pc" or (of, call.func.attr) == ("pa", "array")


def _unlisted(found: set[str], listed: dict[str, str]) -> list[str]:
    return sorted(one for one in found if one not in listed and one.partition(":")[0] not in listed)


def _unused(found: set[str], listed: dict[str, str]) -> list[str]:
    return sorted(_there(listed) - found - {one.partition(":")[0] for one in found})


def _there(listed: dict[str, str]) -> set[str]:
    """Of places, those whose extension was not deleted."""
    return {one for one in listed if not is_of_deleted(one)}


def test_guards_near_rows_catch_what_is_no_exception_too() -> None:
    found = breaches()[too_narrow]
    assert (_unlisted(found, WITHOUT_ROWS), _unused(found, WITHOUT_ROWS)) == ([], [])


def test_guards_near_rows_that_catch_some_errors_alone_are_listed_with_their_reason() -> None:
    found = breaches()[narrower]
    named = {one: next((name for name in NARROW if one.startswith(name)), "") for one in found}
    assert sorted(one for one, name in named.items() if not name) == []
    assert sorted(_there(NARROW) - set(named.values())) == []


def test_guards_that_catch_everything_end_when_a_signal_came() -> None:
    found = breaches()[swallowing]
    assert (_unlisted(found, PASSED_ON), _unused(found, PASSED_ON)) == ([], [])


def test_no_guard_encloses_what_a_generator_gives() -> None:
    assert breaches()[enclosing] == set()


def test_no_conversion_of_rows_is_tried() -> None:
    found = breaches()[tried]
    assert (_unlisted(found, TRIED), _unused(found, TRIED)) == ([], [])


@pytest.mark.parametrize(
    ("rule", "source"),
    [
        (too_narrow, "def f():\n try: g()\n except (Exception, SystemExit): pass\n"),
        (too_narrow, "def f():\n with contextlib.suppress(Exception): g()\n"),
        (too_narrow, "def f():\n try: g()\n except* Exception: pass\n"),
        (too_narrow, "def f():\n with suppress(Exception, KeyError): g()\n"),
        (narrower, "def f():\n try: g()\n except (ValueError, OverflowError): pass\n"),
        (narrower, "def f():\n with contextlib.suppress(pa.ArrowInvalid): g()\n"),
        (swallowing, "def f():\n try: g()\n except BaseException: pass\n"),
        (swallowing, "def f():\n try: g()\n except* BaseException: pass\n"),
        (swallowing, "def f():\n try: g()\n except: pass\n"),
        (swallowing, "def f():\n try: g()\n except BaseException: raise ValueError\n"),
        (enclosing, "def f():\n try: yield 1\n except BaseException: raise ValueError\n"),
        (enclosing, "def f():\n try: yield 1\n except* BaseException: raise ValueError\n"),
        (tried, "def f():\n try: x = a.cast(b)\n except* pa.ArrowException: pass\n"),
        (tried, "def f():\n try: return a.cast(b)\n except pa.ArrowException: return c\n"),
        (tried, "def f():\n try: return a.fill_null(b)\n except pa.ArrowException: return c\n"),
        (tried, "def f():\n try: return pc.add(a, b)\n except pa.ArrowException: return c\n"),
        (tried, "def f():\n try: return pa.array(a, b)\n except pa.ArrowException: return c\n"),
    ],
)
def test_what_breaks_a_rule_is_found(rule: Rule, source: str) -> None:
    assert list(rule("m.py", ast.parse(source))) == ["m.py:f"]


# Signals.


@pytest.fixture
def by_python() -> Iterator[None]:
    """Ctrl-C as Python handles it; a shell that runs this in the background has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("by_python")
def test_only_a_signal_sets_the_flag_and_the_outermost_context_clears_it() -> None:
    with interrupts.watched():
        interrupts.end_if_asked()
        with pytest.raises(KeyboardInterrupt), interrupts.watched():
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interrupts.end_if_asked()
    interrupts.end_if_asked()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


SWALLOWING = """
import os, signal, sys
import numpy as np
from dp_pipelines.jobs.run.pipelines import quoting_nothing
from dp_pipelines.training.examples.store import Chunk
from dp_pipelines.training.kernels.own_gradients import GradientKernel
class Model:
    def initial(self): return np.zeros(1)
    def gradient(self, parameters, features, labels):
        if case == "signal":
            os.kill(os.getpid(), signal.SIGINT)
        if case == "signal in a group":
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt as error:
                raise BaseExceptionGroup(f"secret {features}", [error, ValueError(f"secret {features}")])
        if case == "group":
            raise BaseExceptionGroup(f"secret {features}", [KeyboardInterrupt(f"secret {features}")])
        if case == "group of errors":
            raise ExceptionGroup(f"secret {features}", [ValueError(f"secret {features}")])
        raise KeyboardInterrupt(f"secret {features}")
signal.signal(signal.SIGINT, signal.default_int_handler)
chunk = Chunk(np.ones((1, 1), np.float32), np.zeros(1), np.arange(2))
for case in sys.argv[1:]:
    try:
        with quoting_nothing("failed"):
            print(case, GradientKernel(model=Model(), size=1).clipped_sum(np.zeros(1), chunk, 1.0))
    except KeyboardInterrupt as error:
        print(case, "interrupted", error)
"""


def test_a_real_interrupt_ends_a_run_and_one_that_code_over_rows_raises_costs_its_unit() -> None:
    """One process tries all of them: an interrupt leaves nothing behind that decides about the next."""
    words = {
        "nothing": "[0.]",
        "signal": "interrupted ",
        "signal in a group": "interrupted ",
        "group": "[0.]",
        "group of errors": "[0.]",
    }
    ended = subprocess.run([sys.executable, "-c", SWALLOWING, *words], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == [f"{case} {said}" for case, said in words.items()]
