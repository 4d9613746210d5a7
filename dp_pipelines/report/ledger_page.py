"""The page of a ledger, for an auditor: who spent what, when and on which plan, and the proof that nothing was changed.

In: what `ledger.export.to_json` gives. Out: HTML, as every page of ours (`pages`). Holds: each event stands in it with the very
text that was hashed, so that the page alone can be checked, by ten lines of Python that stand in it too; whether the chain fits
is computed again for the page, not believed; nothing is shown that is not in the ledger. Not covered: that this is the ledger
that was used; its head must be compared with a head that someone else has kept.
"""

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from markupsafe import Markup, escape

from dp_pipelines.ledger import events, units
from dp_pipelines.ledger.release_list import contents_in_words
from dp_pipelines.report.numbers import cost_number, public_number
from dp_pipelines.report.pages import amount, document, mapping, mappings, meters, sequence, text

RULES = {
    "reserved": "the cost of all runs of a plan is set aside as one block when the plan is frozen; blocks add up",
    "filter": "each run is charged its own Renyi divergence when it is admitted, and no run is admitted beyond the limit",
}

STATES = {
    "reserved": "admitted",
    "started": "started, not finished",
    "staged": "files complete, not released",
    "committed": "released",
    "published": "released and published",
    "abandoned": "given up",
}

ANSWERS_OPENED, ANSWERS_RAISED = "answers_account_opened", "answers_limits_raised"
PEOPLE_ASKED, ESTIMATE_ADMITTED = "people_asked", "estimate_admitted"
"""Kinds of events of accounts of answers, as an export has them."""

ADMITTED = (events.RUN_RESERVED, ESTIMATE_ADMITTED)
"""Events that admit a run."""

CHECK = f"""import hashlib, html, json, re, sys
page = open(sys.argv[1], encoding="utf-8").read()
number, last = 0, "0" * {len(events.START)}
for found in re.findall(r'<pre class="event">(.*?)</pre>', page):
    line = html.unescape(found)
    if json.loads(line)[:3] != [{events.FORMAT}, number + 1, last]:
        sys.exit(f"event {{number + 1}} does not follow from those before it")
    number, last = number + 1, hashlib.sha256(line.encode()).hexdigest()
print(number, last)"""
"""What the page gives to its reader: a program that verifies the saved page and needs nothing of ours."""


def render(content: Mapping[str, Any]) -> str:
    """The page of a ledger.

    Args:
        content: what `ledger.export.to_json` gives; any part of it may be missing.

    Returns:
        An HTML document.

    >>> page = render({"ledger": "6f2b", "accounts": [{"account": "<b>tea"}]})
    >>> "<bdi>&lt;b&gt;tea</bdi>" in page, "The chain does not fit" in page
    (True, False)
    """
    chain = mappings(content.get("events"))
    bodies = [_body(event) for event in chain]
    accounts = {text(account.get("account")): account for account in mappings(content.get("accounts"))}
    head = mapping(content.get("head"))
    return document(
        "ledger.html.j2",
        ledger=text(content.get("ledger")),
        seq=text(head.get("seq")),
        hash=text(head.get("hash")),
        broken=_first_misfit(chain, head),
        first=text(chain[0].get("time")) if chain else "",
        last=text(chain[-1].get("time")) if chain else "",
        accounts=[_account(account, bodies) for account in accounts.values()],
        answers=[_answers_account(account) for account in mappings(content.get("answers_accounts"))],
        asked=_asked(chain, bodies),
        charges=_charges(chain, bodies, accounts),
        runs=_runs(mappings(content.get("runs")), chain, bodies),
        events=[
            {
                "seq": text(event.get("seq")),
                "time": text(event.get("time")),
                "kind": text(event.get("kind")).replace("_", " "),
                "what": _what(text(event.get("kind")), body),
                "account": text(body.get("account")),
                "run": text(body.get("run_id")),
                "who": text(body.get("who")),
                "hash": text(event.get("hash")),
                "line": Markup(escape(_line(event))),  # noqa: S704  escaped, and whole: it is what was hashed
            }
            for event, body in zip(chain, bodies, strict=True)
        ],
        check=Markup(escape(CHECK)),  # noqa: S704  our own text, escaped
    )


def _body(event: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        return mapping(json.loads(text(event.get("body"))))
    except ValueError:
        return {}


def _line(event: Mapping[str, Any]) -> str:
    """The text whose SHA-256 is the hash of an event: plain ASCII on one line."""
    parts = [event.get(name) for name in ("seq", "previous", "kind", "time", "body")]
    return json.dumps([events.FORMAT, *parts])


def _first_misfit(chain: Sequence[Mapping[str, Any]], head: Mapping[str, Any]) -> str | None:
    """The first event at which the chain does not fit, or None."""
    last = events.START
    for number, event in enumerate(chain, 1):
        parts = [text(event.get(name)) for name in ("kind", "time", "body")]
        hashed = events.digest(number, last, *parts)
        if (event.get("seq"), event.get("previous"), event.get("hash")) != (number, last, hashed):
            return f"event {number}"
        last = hashed
    if chain and (head.get("seq"), head.get("hash")) != (len(chain), last):
        return "the head"
    return None


def _account(account: Mapping[str, Any], bodies: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    name = text(account.get("account"))
    window = mapping(account.get("window"))
    budgets = mapping(account.get("budgets"))
    return {
        "name": name,
        "unit": text(account.get("privacy_unit")),
        "columns": [text(column) for column in sequence(account.get("unit_columns"))],
        "rule": text(account.get("rule")),
        "rule_words": RULES.get(text(account.get("rule")), text(account.get("rule"))),
        "order": text(account.get("order")),
        "window": {part: text(window.get(part)) for part in ("column", "days", "origin")} if window else None,
        "sources": [text(source) for source in sequence(account.get("sources"))],
        "runs": len({text(body.get("run_id")) for body in bodies if body.get("account") == name and "run_id" in body}),
        "budgets": [
            {
                "window": text(place),
                "meters": meters(mapping(budget), rule=text(account.get("rule"))),
                "used": _used(mapping(budget)),
            }
            for place, budget in budgets.items()
        ],
    }


def _answers_account(given: Mapping[str, Any]) -> dict[str, Any]:
    """An account, for the page.

    Args:
        given: an account of answers as an export of the ledger has it; any part of it may be missing.
    """
    questions = mapping(given.get("questions"))
    budget = {name: given.get(name) for name in ("cap", "spent", "left")}
    has_delta = bool(mapping(given.get("cap")).get("delta"))
    return {
        "name": text(given.get("account")),
        "kind": text(given.get("kind")),
        "neighbours": text(given.get("neighbours")),
        "kept": text(given.get("kept")),
        "meters": [meter for meter in meters(budget) if has_delta or meter["name"] != "delta"],
        "asked": f"{public_number(questions.get('asked'))} of {public_number(questions.get('limit'))}",
        "answers": public_number(given.get("answers_limit")),
        "question_epsilon": cost_number(given.get("question_epsilon_limit")),
        "askings": [_asking_in_words(asking) for asking in mappings(given.get("asked"))],
        "estimates": public_number(given.get("estimates")),
        "sources": [text(source) for source in sequence(given.get("sources"))],
    }


def _asking_in_words(asking: Mapping[str, Any]) -> str:
    """What a person was asked at once.

    >>> _asking_in_words({"questions": [{"name": "age", "mechanism": "unary", "epsilon": "1"}], "answers": 2})
    'age (unary, local epsilon 1), answers: 2'
    """
    asked = mappings(asking.get("questions"))
    names = ", ".join(
        f"{text(one.get('name'))} ({text(one.get('mechanism'))}, local epsilon {text(one.get('epsilon'))})"
        for one in asked
    )
    remembered = any(one.get("memoised") for one in asked)
    through = mapping(asking.get("shuffling"))
    said = (
        f"{names}, {'distinct values remembered' if remembered else 'answers'}: {public_number(asking.get('answers'))}"
    )
    return said + (f", shuffled among {public_number(through.get('honest_reports'))} honest reports" if through else "")


def _limits_in_words(limits: Mapping[str, Any]) -> str:
    """The limits of an account.

    >>> _limits_in_words({"epsilon": 3.0, "questions": 2, "answers": 1, "question_epsilon": 2.0})
    'epsilon 3 of a person, questions: 2, answers to each: 1, of local epsilon at most 2'
    """
    delta = f" and delta {cost_number(limits.get('delta'))}" if limits.get("delta") else ""
    return (
        f"epsilon {cost_number(limits.get('epsilon'))}{delta} of a person, questions: {public_number(limits.get('questions'))}, "
        f"answers to each: {public_number(limits.get('answers'))}, of local epsilon at most "
        f"{cost_number(limits.get('question_epsilon'))}"
    )


def _used(budget: Mapping[str, Any]) -> str:
    """Under the rule `filter`: which part of what may be added up is used."""
    used = amount(budget.get("used"))
    return "" if used is None else f"{100 * used:.1f}".removesuffix(".0")


def _charges(
    chain: Sequence[Mapping[str, Any]], bodies: Sequence[Mapping[str, Any]], accounts: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, str]]:
    """Each event that changed what is spent, with what it added or gave back."""
    found: list[dict[str, str]] = []
    charged: dict[tuple[str, str], tuple[tuple[int, int], tuple[str, str, str]]] = {}
    plans: dict[tuple[str, str, str], str] = {}
    contents: dict[tuple[str, str, str], str] = {}
    for body in bodies:
        if said := _contents(body):
            contents.setdefault(_place(body), f" ({said})")
    for event, body in zip(chain, bodies, strict=True):
        kind, key = event.get("kind"), (text(body.get("account")), text(body.get("run_id")))
        cost = _cost(body.get("cost"))
        place = _place(body)
        if kind == events.PLAN_FROZEN:
            plans[place] = text(body.get("plan"))
            what = f"a plan for {public_number(body.get('runs'))} runs" if body.get("runs") != 1 else "a plan for 1 run"
            what += contents.get(place, "")
        elif kind == events.RUN_RESERVED:
            charged[key] = (cost, place)
            what = f"run {key[1]}{contents.get(place, '')}"
        elif kind == events.RUN_ABANDONED and body.get("given_back") and key in charged:
            cost, place = charged.pop(key)
            cost, what = (-cost[0], -cost[1]), f"run {key[1]}, given up: given back"
        else:
            continue
        if cost == (0, 0):
            continue
        order = text(mapping(accounts.get(key[0])).get("order"))
        found.append(
            {
                "seq": text(event.get("seq")),
                "time": text(event.get("time")),
                "who": text(body.get("who")),
                "account": key[0],
                "window": place[1],
                "what": what,
                "plan": plans.get(place, ""),
                "epsilon": _exact(cost[0], 12),
                "delta": cost_number(units.delta_of(cost[1])),
                "order": order,
            }
        )
    return found


def _asked(chain: Sequence[Mapping[str, Any]], bodies: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Each event that charged what people are asked."""
    return [
        {
            "seq": text(event.get("seq")),
            "time": text(event.get("time")),
            "who": text(body.get("who")),
            "account": text(body.get("account")),
            "what": _asking_in_words(mapping(body.get("asking"))),
            "epsilon": _exact(_cost(body.get("cost"))[0], 12),
            "delta": cost_number(units.delta_of(_cost(body.get("cost"))[1])),
        }
        for event, body in zip(chain, bodies, strict=True)
        if event.get("kind") == PEOPLE_ASKED
    ]


def _cost(value: Any) -> tuple[int, int]:
    """A charge in whole units of epsilon (or divergence) and of delta."""
    parts = mapping(value)
    try:
        return int(parts.get("epsilon", 0)), int(parts.get("delta", 0))
    except (TypeError, ValueError):
        return 0, 0


def _exact(amount_in_units: int, digits: int) -> str:
    """Whole units as a decimal, to the last digit.

    >>> _exact(250_000_000_000, 12), _exact(-1, 12), _exact(0, 12)
    ('0.25', '-0.000000000001', '0')
    """
    shown = f"{Decimal(amount_in_units).scaleb(-digits):f}"
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def _runs(
    runs: Sequence[Mapping[str, Any]], chain: Sequence[Mapping[str, Any]], bodies: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    admitted: dict[tuple[str, str], str] = {}
    given_back: dict[tuple[str, str], bool] = {}
    for event, body in zip(chain, bodies, strict=True):
        key = (text(body.get("account")), text(body.get("run_id")))
        if event.get("kind") in ADMITTED:
            admitted[key] = text(body.get("who"))
        elif event.get("kind") == events.RUN_ABANDONED:
            given_back[key] = bool(body.get("given_back"))
    found = []
    for run in runs:
        key = (text(run.get("account")), text(run.get("run_id")))
        state, times = text(run.get("state")), mapping(run.get("times"))
        words = STATES.get(state, state)
        if state == "abandoned":
            words += "; its budget is free again" if given_back.get(key) else "; its charge stays"
        found.append(
            {
                "run": key[1],
                "account": key[0],
                "window": text(run.get("window")),
                "params": sorted((str(name), text(value)) for name, value in mapping(run.get("params")).items()),
                "plan": text(run.get("plan")),
                "job": text(run.get("job")),
                "contents": _contents(run),
                "round": text(run.get("round")),
                "of": "" if run.get("runs") is None else text(run.get("runs")),
                "state": words,
                "attempts": text(run.get("attempts")),
                "who": admitted.get(key, ""),
                "admitted": text(times.get("reserved")),
                "released": text(times.get("committed")),
                "folders": [text(folder) for folder in sequence(run.get("folders"))],
                "files": sorted((str(name), text(value)) for name, value in mapping(run.get("files")).items()),
            }
        )
    return found


def _place(body: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return what tells a plan from others: its account, its window, and what was asked."""
    return text(body.get("account")), text(body.get("window")), text(body.get("asked"))


def _contents(body: Mapping[str, Any]) -> str:
    """Return the metrics of a run by stage, in words; empty where the ledger is too old to say.

    >>> _contents({"stages": [["weekly", ["orders", "revenue"]], ["all", []]]}), _contents({"stages": {"weekly": []}})
    ('weekly: orders, revenue; all', 'weekly')
    """
    stages = body.get("stages")  # of an older ledger in the order of their names
    pairs = list(stages.items()) if isinstance(stages, Mapping) else [sequence(pair) for pair in sequence(stages)]
    return contents_in_words(
        {text(pair[0]): [text(one) for one in sequence(pair[1])] for pair in pairs if len(pair) == 2}
    )


def _what(kind: str, body: Mapping[str, Any]) -> str:
    """An event in a few words; whatever is not said here stands in its line."""
    files = len(mapping(body.get("files")))
    budget = f"epsilon {cost_number(body.get('epsilon'))}, delta {cost_number(body.get('delta'))}"
    return {
        events.ACCOUNT_OPENED: f"cap {budget}; rule {text(body.get('rule'))}",
        events.CAP_RAISED: f"cap now {budget}",
        events.SOURCE_REGISTERED: text(body.get("source")),
        events.PLAN_FROZEN: f"plan {text(body.get('plan'))[:16]} for {public_number(body.get('runs'))} runs",
        events.RUN_RESERVED: f"round {public_number(body.get('round'))}",
        events.JOB_SUBMITTED: f"{text(body.get('name'))}, to {text(body.get('runner'))}",
        events.ATTEMPT_ENDED: text(body.get("how")),
        events.RUN_STAGED: f"{files} files",
        events.RUN_COMMITTED: f"{files} files",
        events.RUN_PUBLISHED: text(body.get("folder")),
        events.RUN_ABANDONED: "budget given back" if body.get("given_back") else "charge stays",
        ANSWERS_OPENED: f"kind {text(body.get('kind'))}; {_limits_in_words(mapping(body.get('limits')))}",
        ANSWERS_RAISED: f"limits now {_limits_in_words(mapping(body.get('limits')))}",
        PEOPLE_ASKED: _asking_in_words(mapping(body.get("asking"))),
        ESTIMATE_ADMITTED: "estimates from answers",
        events.DATA_TUNED: f"stage {text(body.get('stage'))}, looked at the raw rows; nothing charged, nothing covered",
    }.get(kind, "")
