"""The rules of the house, held by reading the source: who may import whom, headers, lengths, names that must not leave.

In: the checkout. Out: one failing test for each rule that is broken, naming file and line. Holds: each rule is a
function from text to findings, and a planted fault beside it shows that it can find one. Not covered: how code behaves.
"""

import ast
import functools
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pytest

from tests.helpers.extension_folders import is_of_deleted, needs
from tests.helpers.source import PACKAGE_FOLDERS, ROOT, imports, modules, nodes, outline, scripts, text_files

LAYERS = (
    "errors disk_errors private_folders interrupts checks frozen collect noise kernels selection accounting collected metrics"
    " mechanisms auto_bounds query plan_stages planning ledger release report training audit engine steps"
)
ORDER = (*LAYERS.split(), "")
"""The rooms of dp_pipelines from the bottom up; each may import itself and what stands before it. "" is `__init__`."""

JOBS_ORDER = (
    *("spec", "terminal", "sql", "stores", "sources", "outputs", "request", "predict", "runners", "run"),
    *("made_up", "session", "init", "beam_yaml", "cli"),
)
"""The rooms of jobs/ from the bottom up, as in ORDER."""

MOST_MODULES = 25
"""The most modules of a folder. The limit is advice: do not split an idea to meet it."""

CLASSES_TWICE = {"Count", "Mean", "PrivacyIdCount", "SelectPartitions", "Sum", "Variance"}
"""Names of classes that stand twice, since programs for PipelineDP call them so too (`transforms.pipeline_dp.private_beam`)."""

KINDS_COMPARED = {
    # Tags of formats that are not ours: DuckDB's trees, YAML's and pydantic's tags, Thrift, NumPy, Polars, PipelineDP.
    "dp_pipelines.jobs.sources.tables": "Polars",
    "dp_pipelines.jobs.spec.validation_errors": "pydantic",
    "dp_pipelines.jobs.spec.yaml_lines": "YAML",
    "dp_pipelines.jobs.sql.dry_run": "DuckDB",
    "dp_pipelines.jobs.sql.guards": "DuckDB",
    "dp_pipelines.jobs.sql.whitelist": "DuckDB",
    "dp_pipelines.jobs.sql.windows.window_whitelist": "DuckDB",
    "dp_pipelines.kernels.columns.column_casts": "NumPy",
    "dp_pipelines.kernels.columns.dictionary_page": "Thrift",
    "dp_pipelines.selection.truncated_geometric": "NumPy",
    "dp_pipelines.transforms.pipeline_dp.extract": "NumPy",
    "dp_pipelines.transforms.pipeline_dp.metrics": "PipelineDP",
    # Whose own kinds they are.
    "dp_pipelines.jobs.sql.windows.frames": "how far a window reaches: four kinds of end, read in one function",
    "dp_pipelines.jobs.sql.windows.window_types": "from DuckDB's kinds of end to those of `frames`",
    "dp_pipelines.ledger.ledger": "the chain's own kinds of event",
    "dp_pipelines.ledger.state": "the chain's own kinds of event",
    "dp_pipelines.report.key_text": "an Arrow type",
    "dp_pipelines.jobs.run.previous_release": "finds the last commit among the chain's events",
    "dp_pipelines.report.ledger_page": "reads the chain's kinds of event, as an export holds them",
    "dp_pipelines.training.kernels.loops": "Numba compiles numbers, no objects",
    "dp_pipelines.training.federated.local_loops": "Numba compiles numbers, no objects",
    "dp_pipelines.extensions.sql_select.select_stages": "the tag of a stage, before its model is known",
    "dp_pipelines.extensions.local_dp.collected_job": "the tag of a stage, before its model is known",
    "dp_pipelines.jobs.spec.job_file": "the tag of a stage, before its model is known",
}
"""Modules that compare a kind with one that they spell, each with the reason: what a kind does, its own object says."""

EXTENSIONS = "dp_pipelines.extensions"
"""The table of extensions, and the folder of each below it."""

FACADE = {"dp_pipelines", "dp_pipelines.transforms"}
"""The two packages that offer all public names, those of extensions too, each loaded when it is first used."""

FINDS_KINDS = {"dp_pipelines.ledger.account_kind"}
"""Modules of the library that find what extensions add to it in the table of extensions. Jobs find the rest."""

LATE = {("dp_pipelines", f"dp_pipelines.jobs.session.{name}") for name in ("session", "stored_release")}
"""What is named from below and loaded when somebody asks for it; a test sees that importing the library does not."""

KERNELS_MAY = {
    *("dp_pipelines.errors", "dp_pipelines.interrupts", "dp_pipelines.kernels", "numpy", "pyarrow"),
    *sys.stdlib_module_names,
}
"""The kernels are pure: arrays and numbers go in and come out, so that they are tested and measured alone."""

NOT_BELOW_TRANSFORMS = {"apache_beam", "jax", "jaxlib", "jax_privacy", "numba"}
"""What the library never imports, but for the rooms of `ALLOWED`."""

ALLOWED = {"dp_pipelines.training": {"jax", "jaxlib", "jax_privacy", "numba"}}
"""Rooms that may import some of these. JAX is an extra: functions import it, not modules, as a test below sees."""

NOT_AT_IMPORT = ("apache_beam", "jax", "numba", "dp_accounting", "duckdb")
"""What `import dp_pipelines` leaves alone, so that --help and a refused request answer at once."""

DOOR = "dp_pipelines.noise.entropy"
DOORS = {DOOR, "dp_pipelines.collect.coins"}
"""Devices that answer questions have the standard library alone, so their coins have a door of their own."""
RANDOM = ("random", "secrets", "numpy.random", "os.urandom", "os.getrandom")
"""What draws. (`uuid.uuid4` names folders of attempts; no value that is published depends on it.)"""

DRAWS = {name.rpartition(".")[2] for name in RANDOM}
"""The last words of `RANDOM`."""

SETTINGS_OF_CHANCE = {"seed", "rng", "random_state", "no_noise", "noise_free"}

MOST_LENGTH = 600
"""The most lines of a module. The limit is advice: do not split an idea to meet it."""

MOST_HEADER = 9
"""Lines of a module's docstring: what it is for, an empty line, and In, Out, Holds, Not covered."""

# Written so that this file is not its own finding.
PRIVATE_NAMES = re.compile(
    r"(?<![\w.~-])/(?:wor[k]|roo[t]|hom[e]/\w+|User[s]/\w+|opt/whee[l]s)\b"
    r"|\b(?:pyp[i]\.org|pythonhoste[d]\.org|crate[s]\.io|golan[g]\.org|npmj[s]\.|maven\.or[g]|debia[n]\.org)"
    r"|--(?:extra-)?index-ur[l]\b|--find-link[s]\b"
)
"""Paths of one machine, hosts of registries, and options that carry either."""


@functools.cache
def sources() -> dict[str, tuple[str, bool]]:
    """The texts of all modules of the distribution by name, and whether each is that of a package."""
    found = {name: (path.read_text(), path.name == "__init__.py") for name, path in modules().items()}
    for text, _ in found.values():
        outline(text)
        syntax(text)  # while its nodes are at hand
    return found


def room(name: str) -> str:
    """The room of a name under dp_pipelines: its first part where that is a room, else the top."""
    first = name.removeprefix("dp_pipelines").lstrip(".").partition(".")[0]
    return first if first in ORDER else ""


def under(name: str, root: str) -> bool:
    """Whether a dotted name is `root` or inside it."""
    return name == root or name.startswith(root + ".")


def extension_of(name: str) -> str:
    """Return the extension that a dotted name is in, by its folder; nothing outside of extensions.

    The functions of the table have names in lower case too, so that only folders that exist count.
    """
    folder = name.removeprefix(f"{EXTENSIONS}.").partition(".")[0] if name.startswith(f"{EXTENSIONS}.") else ""
    return folder if folder and (ROOT / "dp_pipelines" / "extensions" / folder).is_dir() else ""


def imported_extensions(module: str, source: str, is_package: bool = False) -> Iterator[str]:
    """Imports of an extension from outside of its folder: features are found through the table alone."""
    for name, line in imports(source, module, is_package):
        if (extension := extension_of(name)) and extension != extension_of(module) and module not in FACADE:
            yield f"{module}:{line} imports {name}: deleting the extension {extension!r} would break it"


def rank_in_jobs(name: str) -> int:
    """The place of a name's room in `JOBS_ORDER`; -1 outside of jobs."""
    parts = name.split(".")
    return JOBS_ORDER.index(parts[2]) if parts[:2] == ["dp_pipelines", "jobs"] and len(parts) > 2 else -1


def upward_imports(module: str, source: str, is_package: bool = False) -> Iterator[str]:
    """Imports against the order: up the rooms, from the library into Beam, from transforms into jobs, bare names."""
    above = [p for p in ("dp_pipelines.jobs", "dp_pipelines.transforms") if not under(module, p)]
    if under(module, "dp_pipelines.jobs") or extension_of(module):
        above = []
    beyond = ("dp_pipelines.jobs", "dp_pipelines.transforms")
    in_library = not any(under(module, package) for package in beyond) and not extension_of(module)
    allowed = {name for place, names in ALLOWED.items() if under(module, place) for name in names}
    for name, line in imports(source, module, is_package):
        if name.partition(".")[0] in ("transforms", "jobs"):
            yield f"{module}:{line} imports {name} under a bare name"
        if (module, name.rpartition(".")[0]) in LATE or (module, name) in LATE:
            continue
        if module in FINDS_KINDS and under(name, EXTENSIONS) and not extension_of(name):
            continue
        if any(under(name, package) for package in above):
            yield f"{module}:{line} imports {name}, which stands above it"
        elif in_library and any(under(name, banned) for banned in NOT_BELOW_TRANSFORMS - allowed):
            yield f"{module}:{line} imports {name}: the library knows no engine"
        elif under(module, "dp_pipelines.jobs") and rank_in_jobs(name) > rank_in_jobs(module):
            yield f"{module}:{line} imports {name}, which stands above it in JOBS_ORDER"
        elif in_library and under(name, "dp_pipelines") and ORDER.index(room(name)) > ORDER.index(room(module)):
            yield f"{module}:{line} imports {name}, which stands above it in ORDER"


def impure_kernels(module: str, source: str) -> Iterator[str]:
    """Imports of the kernels beyond errors, interrupts, numpy, pyarrow and the standard library."""
    if under(module, "dp_pipelines.kernels"):
        for name, line in imports(source, module):
            if not any(under(name, allowed) for allowed in KERNELS_MAY):
                yield f"{module}:{line} imports {name}: kernels know only errors, interrupts, numpy and pyarrow"


def other_doors(module: str, source: str) -> Iterator[str]:
    """Randomness that does not come through the one door, and arguments that would steer it."""
    if module in DOORS:
        return
    for name, line in imports(source, module):
        if any(under(name, source_of_chance) for source_of_chance in RANDOM):
            yield f"{module}:{line} imports {name}: randomness comes from {DOOR}"
    for said, line in syntax(source).chance:
        yield f"{module}:{line} {said}"


def _is_kind(node: ast.AST) -> bool:
    """Whether an expression is a kind: a name or attribute `kind`, `["kind"]`, `.get("kind")`, a call such as `str(kind)`."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and node.slice.value == "kind"
    if isinstance(node, ast.Call):
        return any(
            _is_kind(given) or (isinstance(given, ast.Constant) and given.value == "kind") for given in node.args
        )
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name == "kind" or name.endswith("_kind")


def _spells(node: ast.AST, *, member: bool) -> bool:
    """Whether an expression spells a kind: text, a constant, or a list with one. To look into a named table spells none."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return any(_spells(each, member=False) for each in node.elts)
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name.isupper() and not member


class Syntax(NamedTuple):
    """What the rules want of a module's syntax, read once for all of them.

    Args:
        chance: what steers or draws randomness, as the end of a finding, and its line.
        kinds: where a kind is compared with one that is spelled there, or matched.
        texts: the texts that are spelled as names of columns of ours.
        classes: the names of its classes.
    """

    chance: list[tuple[str, int]]
    kinds: list[str]
    texts: set[str]
    classes: set[str]


@functools.cache
def syntax(source: str) -> Syntax:
    """The syntax of a module, as the rules see it."""
    found = Syntax([], [], set(), set())
    for node in nodes(source):
        if isinstance(node, ast.Attribute):
            if node.attr in DRAWS and (written := re.sub(r"^np\.", "numpy.", ast.unparse(node))) in RANDOM:
                found.chance.append((f"uses {written}: randomness comes from {DOOR}", node.lineno))
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, str) and OUR_COLUMNS.fullmatch(node.value):
                found.texts.add(node.value)
        elif isinstance(node, ast.arg):
            if node.arg in SETTINGS_OF_CHANCE:
                found.chance.append((f"takes {node.arg}: nobody sets or stops the noise", node.lineno))
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            member = any(isinstance(how, ast.In | ast.NotIn) for how in node.ops)
            if any(map(_is_kind, sides)) and any(_spells(side, member=member) for side in sides):
                found.kinds.append(ast.unparse(node))
        elif isinstance(node, ast.Match):
            if _is_kind(node.subject):
                found.kinds.append(ast.unparse(node.subject))
        elif isinstance(node, ast.ClassDef):
            found.classes.add(node.name)
    return found


def kinds_compared(source: str) -> list[str]:
    """Where a kind is compared with one that is spelled there, or matched."""
    return syntax(source).kinds


OUR_COLUMNS = re.compile(r"__dp_\w+|_all")
"""Names of columns that code of ours adds to tables of rows."""


def our_columns(source: str) -> set[str]:
    """The names of columns of ours that a module spells outside of docstrings."""
    return syntax(source).texts


def bare_header(source: str) -> bool:
    """Whether a module does not open with a docstring that says more than a word or two."""
    return len(outline(source).header) < 20


def long_header(source: str) -> bool:
    """Whether a module opens with an essay, which belongs beside the code as comments, or into docs/proofs."""
    return len(outline(source).header.splitlines()) > MOST_HEADER


def future_annotations(source: str) -> bool:
    """Whether a module turns its hints into text: Beam would read Any from them and fall back to pickle."""
    return any(name == "__future__.annotations" for name, _ in imports(source))


def private_names(text: str) -> list[str]:
    """What names a machine or a registry's host."""
    return [match.group() for match in PRIVATE_NAMES.finditer(text)]


def loaded_by(statement: str) -> list[str]:
    """Which of the slow libraries a fresh interpreter has loaded after a statement."""
    code = f"import sys\n{statement}\nprint(*(name for name in {NOT_AT_IMPORT!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def make_targets() -> dict[str, list[str]]:
    """The targets of the Makefile and what each of them needs first."""
    lines = (ROOT / "Makefile").read_text().splitlines()
    found = (re.match(r"([a-z][a-z-]*):(?!=)([^#]*)", line) for line in lines)
    return {match[1]: match[2].split() for match in found if match}


def make_calls(markdown: str) -> set[str]:
    """The targets that a page tells its reader to make, in blocks and in inline code."""
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", markdown, flags=re.MULTILINE | re.DOTALL)
    calls = [line.strip() for block in blocks for line in block.splitlines()]
    calls += re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", markdown, flags=re.MULTILINE | re.DOTALL))
    made = (re.match(r"(?:\$ )?make ((?:[a-z][a-z-]*\s*)+)", call) for call in calls)
    return {target for match in made if match for target in match[1].split()}


def test_imports_go_one_way() -> None:
    found = [
        finding
        for module, (text, is_package) in sources().items()
        for finding in upward_imports(module, text, is_package)
    ]
    assert not found, "\n".join(found)


def test_every_room_of_the_library_has_its_place_in_the_order() -> None:
    inside = {m.split(".")[1] for m in modules() if m.startswith("dp_pipelines.")} - {
        "transforms",
        "jobs",
        "extensions",
    }
    assert inside == {name for name in ORDER if name}
    of_jobs = {m.split(".")[2] for m in modules() if m.startswith("dp_pipelines.jobs.")}
    assert of_jobs == set(JOBS_ORDER)


def crowded(names: Iterable[str]) -> dict[str, int]:
    """Folders with more modules than `MOST_MODULES`, of the modules of these names."""
    found = Counter(name.rpartition(".")[0] for name in names)
    return {folder: number for folder, number in found.items() if number > MOST_MODULES}


def ambiguous(names: Iterable[str], packages: Iterable[str]) -> set[str]:
    """Return the names that a module and a folder share: the folder hides the module from every import.

    Args:
        names: full names of modules.
        packages: full names of folders.
    """
    return set(names) & set(packages)


def classes(source: str) -> set[str]:
    """The public classes of a module."""
    return {name for name in syntax(source).classes if not name.startswith("_")}


def test_a_class_name_stands_for_one_thing() -> None:
    found = Counter(name for text, _ in sources().values() for name in classes(text))
    assert {name for name, number in found.items() if number > 1} == CLASSES_TWICE


def test_public_classes_are_found() -> None:
    assert classes("class A:\n    class B: ...\nclass _C: ...") == {"A", "B"}


def test_no_folder_holds_more_modules_than_a_person_can_read_as_a_list() -> None:
    assert crowded(name for name, path in modules().items() if path.name != "__init__.py") == {}


def test_a_name_is_unique_within_its_folder() -> None:
    files = [path for folder in PACKAGE_FOLDERS.values() for path in (ROOT / folder).rglob("*.py")]
    parts = [path.relative_to(ROOT).with_suffix("").parts for path in files if path.name != "__init__.py"]
    assert ambiguous(map(".".join, parts), (".".join(path.relative_to(ROOT).parent.parts) for path in files)) == set()


def test_a_crowded_folder_and_a_name_that_is_not_unique_are_found() -> None:
    assert crowded(f"dp_pipelines.jobs.m{number}" for number in range(26)) == {"dp_pipelines.jobs": 26}
    assert crowded(f"dp_pipelines.jobs.m{number}" for number in range(25)) == {}
    assert ambiguous(["jobs.sql.windows", "jobs.windows"], ["jobs", "jobs.sql", "jobs.sql.windows"]) == {
        "jobs.sql.windows"
    }


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("dp_pipelines.noise.laws", "from dp_pipelines.planning import plan"),
        ("dp_pipelines.noise.laws", "def f():\n    from dp_pipelines.planning.plan import Plan"),
        ("dp_pipelines.errors", "from dp_pipelines import checks"),
        ("dp_pipelines.query.query", "from dp_pipelines import Count"),
        ("dp_pipelines.kernels.keys", "from ..selection import select"),
        ("dp_pipelines.report.report", "import apache_beam as beam"),
        ("dp_pipelines.report.report", "from jax import numpy"),
        ("dp_pipelines.training.fit", "import apache_beam"),
        ("dp_pipelines.planning.plan", "from dp_pipelines.training import trainer"),
        ("dp_pipelines.planning.plan", "import dp_pipelines.transforms"),
        ("dp_pipelines.planning.plan", "import importlib\nimportlib.import_module('dp_pipelines.jobs.cli.main')"),
        ("dp_pipelines.transforms.read", "from dp_pipelines.jobs import run"),
        ("dp_pipelines.jobs.run.run", "from transforms import read"),
        ("dp_pipelines.jobs.spec.job_file", "from dp_pipelines.jobs.request import request"),
        ("dp_pipelines.jobs.run.run", "def f():\n    from dp_pipelines.jobs.cli.main import main"),
    ],
)
def test_an_import_that_goes_up_is_found(module: str, source: str) -> None:
    assert list(upward_imports(module, source))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("dp_pipelines.planning.plan", "from dp_pipelines import checks\nfrom dp_pipelines.query.query import Query"),
        ("dp_pipelines.transforms.read", "import apache_beam\nfrom dp_pipelines.planning.plan import Plan"),
        ("dp_pipelines.jobs.run.run", "from dp_pipelines.transforms import read\nimport dp_pipelines"),
        ("dp_pipelines.training.kernels.mlp", "def f():\n    import jax"),
    ],
)
def test_an_import_that_goes_down_is_allowed(module: str, source: str) -> None:
    assert not list(upward_imports(module, source))


def test_no_module_imports_an_extension_of_another_folder() -> None:
    found = [
        finding
        for module, (text, is_package) in sources().items()
        for finding in imported_extensions(module, text, is_package)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "from dp_pipelines.extensions import describe",
        "def f():\n    from dp_pipelines.extensions.describe.command import DESCRIBE",
        "import importlib\nimportlib.import_module('dp_pipelines.extensions.describe')",
    ],
)
@needs("describe")
def test_an_import_of_an_extension_is_found(source: str) -> None:
    assert list(imported_extensions("dp_pipelines.jobs.cli.main", source))
    assert not list(imported_extensions("dp_pipelines.extensions.describe.write_page", source))
    assert not list(imported_extensions("dp_pipelines.jobs.cli.main", "from dp_pipelines.extensions import load"))
    assert list(upward_imports("dp_pipelines.release.draw", "from dp_pipelines.extensions import load"))
    (finds,) = FINDS_KINDS
    assert not list(upward_imports(finds, "from dp_pipelines.extensions import load"))
    assert list(imported_extensions(finds, source))
    assert list(imported_extensions("dp_pipelines.extensions.tune.command", source)), (
        "nor does one extension import another"
    )


def test_kernels_know_only_errors_interrupts_numpy_and_pyarrow() -> None:
    found = [finding for module, (text, _) in sources().items() for finding in impure_kernels(module, text)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("source", ["import duckdb", "from dp_pipelines.noise import samplers", "import numpyro"])
def test_a_kernel_that_knows_more_is_found(source: str) -> None:
    assert list(impure_kernels("dp_pipelines.kernels.keys", source))


def test_no_script_imports_our_folders_under_a_bare_name() -> None:
    found = [f"{p.relative_to(ROOT)}:{i.line}" for p in scripts() for i in imports(p.read_text()) if is_bare(i.name)]
    assert not found, found


def is_bare(name: str) -> bool:
    """Whether an imported name is one of our folders without dp_pipelines before it."""
    return name.partition(".")[0] in ("transforms", "jobs")


def test_randomness_has_one_door() -> None:
    found = [finding for module, (text, _) in sources().items() for finding in other_doors(module, text)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "import random",
        "from numpy.random import default_rng",
        "import numpy as np\nnp.random.default_rng()",
        "import os\nos.urandom(8)",
        "def draw(*, seed=None): ...",
    ],
)
def test_another_door_is_found(source: str) -> None:
    assert list(other_doors("dp_pipelines.selection.geometric", source))


def test_what_a_kind_does_is_asked_of_its_object() -> None:
    found = {name: found for name, (text, _) in sources().items() if (found := kinds_compared(text))}
    new = {name: where for name, where in found.items() if name not in KINDS_COMPARED}
    assert not new, f"let the object of the kind say it, or give a reason in KINDS_COMPARED: {new}"
    gone = {name for name in KINDS_COMPARED if not is_of_deleted(name)} - set(found)
    assert not gone, f"these compare no kind any more; take them out of KINDS_COMPARED: {gone}"


@pytest.mark.parametrize(
    "source",
    [
        "if record.kind == 'gaussian': pass",
        "if 'gaussian' != kind: pass",
        "a = 1 if statistic.kind in ('rows', 'units') else 2",
        "if record['kind'] == 'laplace': pass",
        "if event.get('kind') == events.RUN_RESERVED: pass",
        "if str(kind) == 'Object': pass",
        "if label_kind not in {*NUMBERS, 'other'}: pass",
        "match task.kind:\n    case 'binary': pass",
    ],
)
def test_a_kind_that_is_compared_is_found(source: str) -> None:
    assert kinds_compared(source)


@pytest.mark.parametrize(
    "source", ["kind in KINDS", "planned.kind == made.kind", "KINDS[record.kind].fields", "kind is None"]
)
def test_a_kind_that_is_looked_up_is_no_finding(source: str) -> None:
    assert not kinds_compared(source)


def test_a_column_of_ours_is_spelled_in_one_module() -> None:
    spelled = [(column, name) for name, (text, _) in sources().items() for column in our_columns(text)]
    assert {"__dp_held_out", "_all"} <= {column for column, _ in spelled}
    several = {column for column, number in Counter(column for column, _ in spelled).items() if number > 1}
    assert not several, [(column, name) for column, name in spelled if column in several]


def test_a_column_of_ours_that_is_spelled_is_found() -> None:
    assert our_columns('"""Says __dp_held_out."""\nif "__dp_held_out" in table.column_names: pass') == {"__dp_held_out"}


def test_every_module_opens_with_its_header() -> None:
    empty = [p for p in scripts() if p.name == "__init__.py" and not p.read_text()]
    found = [p for p in (*modules().values(), *scripts()) if p not in empty and bare_header(p.read_text())]
    assert not found, [str(path.relative_to(ROOT)) for path in found]


@pytest.mark.parametrize("source", ["", "import os\n", '"""Kernels."""', "# a comment is no docstring, however long"])
def test_a_missing_header_is_found(source: str) -> None:
    assert bare_header(source)


def test_no_module_opens_with_an_essay() -> None:
    found = [name for name, (text, _) in sources().items() if long_header(text)]
    assert not found


def test_an_essay_is_found() -> None:
    assert long_header('"""One.\n' + "\nTwo." * MOST_HEADER + '"""')
    assert not long_header('"""One.\n\nIn: this. Out: that."""')


def test_no_module_is_longer_than_a_person_reads_at_once() -> None:
    lengths = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in modules().values()}
    assert max(lengths.values()) > 10, "no source was read"
    long = {str(path): length for path, length in lengths.items() if length > MOST_LENGTH}
    assert not long, f"divide by subject: {long} lines, at most {MOST_LENGTH}"


def test_no_module_turns_its_hints_into_text() -> None:
    found = [path for path in (*modules().values(), *scripts()) if future_annotations(path.read_text())]
    assert not found, [str(path.relative_to(ROOT)) for path in found]


def test_hints_as_text_are_found() -> None:
    assert future_annotations("from __future__ import annotations")
    assert not future_annotations("from __future__ import division")


def test_importing_the_library_loads_nothing_slow() -> None:
    assert loaded_by("import dp_pipelines") == []


def test_importing_the_library_loads_nothing_above_it() -> None:
    code = "import sys, dp_pipelines\nprint(*(name for name in sys.modules if name.startswith('dp_pipelines.jobs')))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() == []


def test_importing_the_room_that_trains_loads_no_jax() -> None:
    room = [name for name in modules() if under(name, "dp_pipelines.training")]
    assert "dp_pipelines.training.trainer" in room
    assert not {"jax", "apache_beam"} & set(loaded_by("import " + ", ".join(room)))


def test_a_slow_import_is_found() -> None:
    assert loaded_by("import duckdb") == ["duckdb"]


def test_no_committed_file_names_a_machine_or_a_registry() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("outside a checkout there is nothing to commit")
    files = text_files()
    assert ROOT / "pyproject.toml" in files
    found = {
        f"{path.relative_to(ROOT)}:{number}": names
        for path in files
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1)
        if (names := private_names(line))
    }
    assert not found, found


@pytest.mark.parametrize(
    "line",
    [
        "open('" + "/ro" + "ot/x')",
        "see /" + "work/main/query.py",
        "/" + "home/ann/data",
        "https://" + "pypi" + ".org/simple",
        "--index" + "-url x",
    ],
)
def test_a_machine_or_a_registry_is_found(line: str) -> None:
    assert private_names(line)


@pytest.mark.parametrize(
    "line", ["tests/framework/x", "https://arxiv.org/abs/2004.00010", "out/demo", "the /rooted tree"]
)
def test_plain_paths_and_papers_are_no_finding(line: str) -> None:
    assert not private_names(line)


def test_the_readme_names_only_targets_that_exist() -> None:
    called = make_calls((ROOT / "README.md").read_text())
    assert {"demo", "test"} <= called
    assert called <= set(make_targets())


def test_calls_of_make_are_read_from_blocks_and_inline_code() -> None:
    page = "Run `make lint types`, or make nothing.\n```sh\n$ make demo\nmake test  # all\nmake\n```\n"
    assert make_calls(page) == {"lint", "types", "demo", "test"}


def test_every_target_sets_up_its_environment_first() -> None:
    targets = make_targets()
    promised = {"demo", "test", "test-all", "lint", "types", "doctest", "bench"}
    assert promised <= set(targets)
    assert all("$(VENV)" in targets[name] for name in promised)


def test_the_folders_of_the_packages_are_those_of_the_house() -> None:
    assert all((ROOT / folder / "__init__.py").is_file() for folder in PACKAGE_FOLDERS.values())
