"""Who may draw, and with what: the rules of the gate that are about the source, and the list of trusted modules.

In: the checkout's syntax. Out: nothing. Holds: real words come to a draw through a permit; salts and keys have a function of
their own; docs/reviewers.md names every module on the way to a draw. Not covered: what permits refuse (`tests/release`); code of
other distributions, which could ask the operating system for words.
"""

import ast
import functools
import re
from collections.abc import Iterator

import pytest

from tests.helpers.source import ROOT, imports, modules

LIMIT = 15_000
"""Lines that a reviewer must read, at most."""

LOW = ("dp_pipelines.noise", "dp_pipelines.selection", "dp_pipelines.mechanisms", "dp_pipelines.release")
"""Packages that draw. None of them makes a salt or a key."""

WORDS = {
    "dp_pipelines.release.gate": "hands words out with permits",
    "dp_pipelines.training.gaussian_noise": "the noise of sums, which takes its permit before each draw",
}
"""Modules above the samplers that name `entropy.words`, with the reason."""

DRAWERS = {
    "dp_pipelines.noise.samplers.Sampler": {"release.gate"},
    "dp_pipelines.noise.poisson_samples.PoissonSampler": {
        *("release.large_lists", "training.drawing", "training.trainer", "audit.fitted"),
    },
    "dp_pipelines.noise.conditional_draws.SampledLaw": {
        *("mechanisms.permits", "planning.noise_levels.passing_noise"),  # the latter computes a chance
    },
    "dp_pipelines.noise.smooth_sensitivity": {"mechanisms.smooth_median", "audit.decisions"},
    "dp_pipelines.selection.exact": {"selection.exponential"},
    "dp_pipelines.selection.exponential.permute_and_flip": {"mechanisms.rank_choice"},
    "dp_pipelines.selection.exponential.top_k": {"mechanisms.best_choice"},
    "dp_pipelines.selection.exponential": {"audit.decisions"},
    "dp_pipelines.training.gaussian_noise.NoisySum": {
        *("training.drawing", "training.trainer", "training.teachers.noisy_answers"),
        *("audit.fitted", "audit.steps", "audit.teacher_votes"),
    },
}
"""What draws, and the modules that import it. Those of the audit draw over made-up examples, and publish nothing."""

STEPS = {
    "draw_release": 3,
    "draw_level": 3,
    "draw_passing": 5,
    "draw_best": 3,
    "noisy": 5,
    "noisy_numbers": 3,
    "released_tables": 5,
}
"""Functions that draw, and how many arguments they have with their permits."""

WITH_WORDS = {"permute_and_flip", "top_k", "draw"}
"""What a mechanism calls with the words of its permit; left to itself, it would draw without one."""

CLIENT = "dp_pipelines.collect"
"""Devices of local DP: they draw without a plan, and from a door of their own."""


@functools.cache
def trees() -> dict[str, ast.Module]:
    """The syntax of all modules of the distribution."""
    return {name: ast.parse(path.read_text()) for name, path in modules().items()}


def named(tree: ast.AST, attribute: str) -> bool:
    """Whether a module names `entropy.<attribute>`, or imports it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == attribute and ast.unparse(node.value).endswith("entropy"):
            return True
        if isinstance(node, ast.ImportFrom) and (node.module or "").endswith("noise.entropy"):
            return True
    return False


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """The last word of what is called, and the call; of a method of the same object all words."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            written = ast.unparse(node.func)
            yield written if written.startswith("self.") else written.rpartition(".")[2], node


def test_only_the_gate_hands_out_words() -> None:
    samplers = ("dp_pipelines.noise.", "dp_pipelines.selection.", "dp_pipelines.audit.")
    found = {name for name, tree in trees().items() if named(tree, "words") and not name.startswith(samplers)}
    assert found == set(WORDS)


def test_what_draws_makes_no_salt_and_mechanisms_know_no_words() -> None:
    for name, tree in trees().items():
        if name.startswith(LOW) and name != "dp_pipelines.noise.entropy":
            assert not named(tree, "salt"), name
            assert not named(tree, "salt_number"), name
        if name.startswith("dp_pipelines.mechanisms"):
            assert not any("entropy" in each.name for each in imports(modules()[name].read_text())), name


@pytest.mark.parametrize(
    "source",
    ["from dp_pipelines.noise import entropy\nentropy.words(3)", "from dp_pipelines.noise.entropy import words"],
)
def test_words_that_a_module_takes_by_itself_are_found(source: str) -> None:
    assert named(ast.parse(source), "words")


def test_only_listed_modules_import_what_draws() -> None:
    found: dict[str, set[str]] = {name: set() for name in DRAWERS}
    for name, path in modules().items():
        for imported in imports(path.read_text()):
            if imported.name in found:
                found[imported.name].add(name.removeprefix("dp_pipelines."))
    assert found == DRAWERS


def test_whoever_draws_passes_permits_and_mechanisms_pass_their_words() -> None:
    for name, tree in trees().items():
        for called, node in calls(tree):
            if called == "noisy_numbers" and name.startswith("dp_pipelines.audit."):  # a function of its own
                continue
            if called in STEPS:
                assert len(node.args) >= STEPS[called], f"{name}:{node.lineno} draws without permits"
            if called in WITH_WORDS and name.startswith("dp_pipelines.mechanisms") and not name.endswith(".permits"):
                assert any(given.arg == "words" for given in node.keywords), f"{name}:{node.lineno} draws by itself"


def test_permits_come_from_the_gate_and_unchecked_ones_go_to_the_audit_alone() -> None:
    makes = {"dp_pipelines.release.gate", "dp_pipelines.mechanisms.permits"}
    for name, tree in trees().items():
        for called, node in calls(tree):
            if called in ("Permit", "Permits", "SumsPermit", "Right", "Sources"):
                assert name in makes, f"{name}:{node.lineno}"
            if called == "replay" and ast.unparse(node.func) == "gate.replay":
                assert name.startswith("dp_pipelines.audit."), f"{name}:{node.lineno}"


def test_training_draws_through_the_drawing_of_its_fit() -> None:
    (fitted,) = [node for called, node in calls(trees()["dp_pipelines.training.fit"]) if called == "train"]
    assert {"noisy_sum", "sampler"} <= {given.arg for given in fitted.keywords}
    others = {name for name, tree in trees().items() if any(called == "train" for called, _ in calls(tree))}
    assert others == {"dp_pipelines.training.fit", "dp_pipelines.audit.steps"}


def test_devices_draw_without_a_plan_and_nothing_else_has_their_coins() -> None:
    coins = {
        name
        for name, path in modules().items()
        if any(each.name.startswith(f"{CLIENT}.coins.SystemCoins") for each in imports(path.read_text()))
    }
    assert coins
    assert all(name.startswith(f"{CLIENT}.") for name in coins)
    assert "`dp_pipelines/collect`" in section("What draws without a permit")


# The list of trusted modules.


@functools.cache
def section(title: str) -> str:
    """A section of docs/reviewers.md."""
    (found,) = re.findall(
        rf"^## {re.escape(title)}\n(.*?)^## ", (ROOT / "docs/reviewers.md").read_text(), re.MULTILINE | re.DOTALL
    )
    return str(found)


def listed(text: str) -> list[str]:
    """The modules that a table names: a folder, then its modules."""
    rows = re.findall(r"^\| `(dp_pipelines[\w/]*)` \| (.*?) \|", text, re.MULTILINE)
    return [
        f"{folder.replace('/', '.')}.{module}" for folder, names in rows for module in re.findall(r"`(\w+)`", names)
    ]


def test_the_trusted_modules_exist_and_can_be_read() -> None:
    trusted = listed(section("Trusted modules"))
    assert len(trusted) == len(set(trusted)) > 50
    assert set(trusted) <= set(modules())
    lines = sum(len(modules()[name].read_text().splitlines()) for name in trusted)
    assert lines <= LIMIT
    told = int(re.findall(r"([\d,]+) lines", section("Trusted modules"))[0].replace(",", ""))
    assert lines <= told <= LIMIT


def test_every_way_to_a_draw_goes_through_trusted_modules() -> None:
    trusted = set(listed(section("Trusted modules"))) | set(listed(section("What draws without a permit")))
    drawing = set()
    for name, tree in trees().items():
        named_here = {called for called, _ in calls(tree)}
        if named_here & {*STEPS, "open_gate", "open_sums", "add_noise", "noise_within", "words_of_bucket"}:
            drawing.add(name)
    drawing |= {f"dp_pipelines.{name}" for names in DRAWERS.values() for name in names} | set(WORDS)
    drawing = {name for name in drawing if not name.startswith(("dp_pipelines.audit.", "dp_pipelines.planning."))}
    assert drawing <= trusted
