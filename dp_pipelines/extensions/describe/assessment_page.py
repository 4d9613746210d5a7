"""The page of a privacy impact assessment: sections of text, lists and tables, as HTML or as Markdown.

In: sections. Out: one file, HTML that fetches nothing or Markdown to edit. Holds: the same sections in both; every text is made
visible and escaped; the same input gives the same bytes. Not covered: what the sections say (`assessment`).
"""

import dataclasses
import re
from collections.abc import Iterator, Sequence

from dp_pipelines.report.key_text import visible
from dp_pipelines.report.pages import LONGEST_FACT, document

PACKAGE = "dp_pipelines.extensions.describe"
"""The package that has the template."""

_MEANS_SOMETHING = re.compile(r"([\\`*_\[\]<>|#~])")
"""What Markdown takes for more than a character."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Listed:
    """A list.

    Args:
        items: one text each.
    """

    items: Sequence[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cells:
    """A table.

    Args:
        caption: what it shows.
        head: names of its columns.
        rows: of texts, as many as names.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToFillIn:
    """A question that only the people who are responsible can answer.

    Args:
        question: what to write here.
    """

    question: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verbatim:
    """Lines as a program prints them.

    Args:
        text: its lines.
    """

    text: str

    @property
    def lines(self) -> list[str]:
        """Each line with nothing hidden in it."""
        return [visible(line.rstrip(), LONGEST_FACT) for line in self.text.splitlines()]


Block = str | Listed | Cells | ToFillIn | Verbatim


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
    """A section.

    Args:
        heading: its title.
        blocks: its content, in order; a text is a paragraph.
    """

    heading: str
    blocks: Sequence[Block]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Assessment:
    """A whole page.

    Args:
        kind: the first words of its title.
        title: what is assessed.
        facts: names and values at the top.
        lead: the first sentence.
        sections: all others.
    """

    kind: str = "Privacy impact assessment"
    title: str
    facts: Sequence[tuple[str, str]]
    lead: str
    sections: Sequence[Section]


def to_html(page: Assessment) -> str:
    """The page as HTML.

    >>> page = Assessment(title="<b>tea", facts=[], lead="", sections=[Section(heading="Data", blocks=["rows"])])
    >>> "<title>Privacy impact assessment of &lt;b&gt;tea</title>" in to_html(page)
    True
    """
    kinds = {str: "text", Listed: "list", Cells: "table", ToFillIn: "fill", Verbatim: "lines"}
    sections = [
        {"heading": section.heading, "blocks": [(kinds[type(block)], block) for block in section.blocks]}
        for section in page.sections
    ]
    return document(
        "assessment.html.j2",
        package=PACKAGE,
        title=page.title,
        facts=page.facts,
        lead=page.lead,
        sections=sections,
    )


def to_markdown(page: Assessment) -> str:
    r"""The page as Markdown.

    >>> page = Assessment(title="tea", facts=[("unit", "a_b")], lead="All.", sections=[Section(heading="Data", blocks=["rows"])])
    >>> print(to_markdown(page), end="")
    # Privacy impact assessment of tea
    <BLANKLINE>
    * **unit**: a\_b
    <BLANKLINE>
    All.
    <BLANKLINE>
    ## 1. Data
    <BLANKLINE>
    rows
    """
    parts = [f"# {page.kind} of {_safe(page.title)}"]
    if page.facts:
        parts.append("\n".join(f"* **{_safe(name)}**: {_safe(value)}" for name, value in page.facts))
    if page.lead:
        parts.append(_safe(page.lead))
    for number, section in enumerate(page.sections, 1):
        parts.append(f"## {number}. {_safe(section.heading)}")
        parts += ["\n".join(_lines(block)) for block in section.blocks]
    return "\n\n".join(parts) + "\n"


def _lines(block: Block) -> Iterator[str]:
    if isinstance(block, Listed):
        yield from (f"* {_safe(item)}" for item in block.items)
    elif isinstance(block, Cells):
        yield f"{_safe(block.caption)}\n"
        yield _row(block.head)
        yield _row(["---"] * len(block.head))
        yield from (_row([_safe(cell) for cell in row]) for row in block.rows)
    elif isinstance(block, ToFillIn):
        yield f"> **To fill in:** {_safe(block.question)}"
    elif isinstance(block, Verbatim):  # indented, since no line can end that
        yield from ("    " + line if line else "" for line in block.lines)
    else:
        yield _safe(block)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _safe(text: str) -> str:
    return _MEANS_SOMETHING.sub(r"\\\1", visible(text, LONGEST_FACT))
