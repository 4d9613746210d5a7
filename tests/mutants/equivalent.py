"""Random mutants that change nothing that anybody could rely on, each with the reason.

In: equivalent.yaml. Out: names and reasons. Not covered: whether a reason is right; a person has thought each of them through.
"""

from pathlib import Path

import yaml

LISTED = Path(__file__).with_name("equivalent.yaml")


def listed() -> list[str]:
    """The names, as they stand there."""
    return [name for group in yaml.safe_load(LISTED.read_text()) or [] for name in group["mutants"]]


def reasons() -> dict[str, str]:
    """The reason of each mutant, by its name."""
    groups = yaml.safe_load(LISTED.read_text()) or []
    return {name: group["because"] for group in groups for name in group["mutants"]}
