"""Shared by all pages: one file that fetches nothing, and values of any kind made safe to show.

In: a template and its values. Out: an HTML document. Holds: every text is made visible and escaped on its way out; style and
script are our own files; the page's own policy forbids whatever else might get in. Not covered: what a page says (`report`,
`ledger_page`).
"""

import base64
import functools
import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from dp_pipelines.report.key_text import shown_key, visible
from dp_pipelines.report.numbers import cost_number, left_cost_number

if TYPE_CHECKING:
    import jinja2

SHARED = "dp_pipelines.report"
"""The package whose templates all pages share."""

DATE = re.compile(r"(?<![\w-])\d{4}-(?:W?\d\d|\d\d-\d\d)(?![\w-])")
"""A date, a month or an ISO week in a text."""

NOTHING_LEFT = 0.001
"""Of a limit; what is left below it buys nothing."""

LONGEST_FACT = 2000
"""Characters of a text of a manifest or a ledger that are shown."""


def document(template: str, *, package: str = SHARED, **values: Any) -> str:
    """Return a page as HTML.

    Args:
        template: the file under templates; it extends `base.html.j2`.
        package: the package that has the template; `base.html.j2`, style and script are those of `dp_pipelines.report`.
        values: the template's variables.
    """
    environment = _environment(package)
    script = environment.get_template("table.js.j2").render()
    return environment.get_template(template).render(
        style=Markup(environment.get_template("style.css.j2").render()),  # noqa: S704  our own file, without data
        script=Markup(script),  # noqa: S704  likewise
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        **values,
    )


def meters(budget: Mapping[str, Any], *, rule: str = "") -> list[dict[str, str]]:
    """What is spent of epsilon and of delta, for bars.

    Args:
        budget: `cap`, `spent` and `left`, each with `epsilon` and `delta`; what is missing gets no bar.
        rule: of the account. Under `reserved` all runs of a plan are set aside before the first.

    >>> found = meters({"cap": {"epsilon": 4.0}, "spent": {"epsilon": 3.9995}, "left": {"epsilon": 0.0005}}, rule="reserved")
    >>> [found[0][name] for name in ("percent", "verb", "left", "left_words")]
    ['100', 'set aside for all runs', '0.0005', 'nothing left']
    """
    cap, spent, left = (mapping(budget.get(name)) for name in ("cap", "spent", "left"))
    found = []
    for name in ("epsilon", "delta"):
        most, used = amount(cap.get(name)), amount(spent.get(name))
        if most is not None and used is not None:
            share = min(1.0, used / most) if most > 0 else float(used > 0)
            rest, little = left_cost_number(left.get(name)), NOTHING_LEFT * most
            found.append(
                {
                    "name": name,
                    "cap": cost_number(most),
                    "spent": cost_number(used),
                    "left": rest,
                    "left_words": "nothing left" if (amount(left.get(name)) or 0.0) < little else f"{rest} left",
                    "verb": "set aside for all runs" if rule == "reserved" else "spent",
                    "percent": f"{100 * share:.1f}".removesuffix(".0"),
                    "width": f"{100 * share:.2f}",
                }
            )
    return found


def unbroken(value: str) -> Markup:
    """Return a text as HTML in which no line ends within a date, a month or an ISO week.

    >>> str(unbroken("<b> on 2026-03-16"))
    '&lt;b&gt; on <span class="t">2026-03-16</span>'
    """
    shown = str(escape(visible(value, LONGEST_FACT)))
    return Markup(DATE.sub(r'<span class="t">\g<0></span>', shown))  # noqa: S704  escaped before


def begins_with_date(text: str) -> bool:
    """Return True if a key is a date or a moment, in which no line may end."""
    return DATE.match(text) is not None


def amount(value: Any) -> float | None:
    """An epsilon or a delta: finite and not negative; None for anything else."""
    sound = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e300
    return float(value) if sound else None


def text(value: Any) -> str:
    """A value as text; nothing for None."""
    return "" if value is None else str(value)


def mapping(value: Any) -> Mapping[str, Any]:
    """A mapping; an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def sequence(value: Any) -> Sequence[Any]:
    """A sequence; an empty one for anything else, texts among them."""
    return value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else ()


def mappings(value: Any) -> list[Mapping[str, Any]]:
    """The mappings in a sequence."""
    return [item for item in sequence(value) if isinstance(item, Mapping)]


@functools.cache
def _environment(package: str) -> "jinja2.Environment":
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(name) for name in dict.fromkeys((SHARED, package))]),
        autoescape=True,
        finalize=_finalize,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["shown_key"] = shown_key
    environment.globals["begins_with_date"] = begins_with_date
    environment.filters["unbroken"] = unbroken
    return environment


def _finalize(value: Any) -> Any:
    """What every expression of a template passes on its way out, before it is escaped."""
    return visible(value, LONGEST_FACT) if isinstance(value, str) and not isinstance(value, Markup) else value
