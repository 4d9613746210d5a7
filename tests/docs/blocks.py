"""The code blocks of a page, and what a comment above one says about it.

In: Markdown. Out: blocks in order. Holds: a block of `sh`, `python` or `yaml` is run as it stands; what else shall happen is said
by one comment above it, which readers of the page do not see:

    <!-- file: weekly.yaml -->             write it to that file; a job file is planned too
    <!-- part of: weekly.yaml at stages --> put it into that file, at that place, and plan the file
    <!-- exits with: 3 -->                 a command that ends so
    <!-- tested by: tests/x/test_y.py -->  that test reads this page
    <!-- not run: needs a cluster -->      for what cannot be had here

Not covered: blocks of other languages, which are what programs print.
"""

import dataclasses
import re

LANGUAGES = ("sh", "python", "yaml")

FENCE = re.compile(
    r"(?:^<!-- (?P<rule>[a-z ]+): (?P<value>[^\n]*?) -->\n)?^```(?P<language>[a-z]*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)

RULES = {"file", "part of", "exits with", "tested by", "not run"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Block:
    """One block, and the rule above it."""

    language: str
    text: str
    rule: str
    value: str
    line: int


def blocks(page: str) -> list[Block]:
    r"""All blocks that are code.

    >>> [found] = blocks("Text.\n<!-- exits with: 3 -->\n```sh\nfalse\n```\n")
    >>> found.rule, found.value, found.text
    ('exits with', '3', 'false\n')
    """
    found = []
    for match in FENCE.finditer(page):
        if match["language"] in LANGUAGES:
            rule, value = match["rule"] or "", match["value"] or ""
            if rule and rule not in RULES:
                raise ValueError(f"a comment above a block says {rule!r}, which is none of {sorted(RULES)}")
            line = page.count("\n", 0, match.start()) + 1
            found.append(Block(language=match["language"], text=match["text"], rule=rule, value=value, line=line))
    return found
