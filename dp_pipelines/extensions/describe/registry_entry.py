"""The entry of a public registry of deployments, from a job's plan.

In: a job, what its stages ask for, its plan as JSON. Out: YAML. Holds: it is valid by the schema of the registry (OpenDP's
`deployments-registry-data`, `schemas/deployments-schema.yaml` at commit 3e9c812a); it says public facts alone; what only its
author knows is marked as to be filled in. Not covered: the author's answers, and later schemas.
"""

import datetime
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

import dp_pipelines
from dp_pipelines.extensions.describe import guarantee, what_is_published, what_remains
from dp_pipelines.extensions.describe.assessment_page import Block, Cells, Listed, ToFillIn
from dp_pipelines.jobs.spec.job_file import Job
from dp_pipelines.query.query import Query
from dp_pipelines.query.row_unit import is_row_unit
from dp_pipelines.query.train_model import TrainModel
from dp_pipelines.release.manifest import unit_in_words

Stages = Mapping[str, Query | TrainModel]

FILL_IN = "TO FILL IN: "

LEAD = """\
# An entry for the registry of deployments (OpenDP, deployments-registry-data), written by dp-pipelines describe from a job file.
# Fill in what begins with "TO FILL IN", and correct publication_date: it is the day on which this was written.
"""


def entry_of(job: Job, stages: Stages, plan: Mapping[str, Any], today: datetime.date) -> str:
    """Return the entry as YAML.

    Args:
        job: to describe.
        stages: what each stage asks for.
        plan: what `plan --json` prints.
        today: stands for the day of publication.
    """
    trained = [name for name, asked in stages.items() if isinstance(asked, TrainModel)]
    content = {
        "url_slug": re.sub(r"[^a-z0-9]+", "-", job.dataset.lower()).strip("-") or "deployment",
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": {
                "name": getattr(job, "title", None) or job.dataset,
                "data_curators": [f"{FILL_IN}who publishes it"],
                "intended_use": f"{FILL_IN}who reads it, and what for",
                "data_product_type": "Machine learning model" if len(trained) == len(stages) else "Summary statistics",
                "data_product_region": f"{FILL_IN}which region the data describe, and whose laws apply",
                "description": _text(what_is_published.blocks_of(job, stages, plan)),
                "publication_date": today.isoformat(),
            },
            "dp_variant": {
                "variant_name": "Approximate DP" if plan["accounted"]["delta"] else "Pure DP",
                "data_domain": "All tables with the columns of the job, with any number of rows and any values in them.",
                "unprotected_quantities": _text(what_remains.risks(job, stages)),
            },
            "privacy_loss": _privacy_loss(job, plan),
            "deployment_model": _model(job),
            "accounting": {
                "post_processing": "Ratios, intervals, plots and orders are computed from released numbers.",
                "composition": _text(guarantee.budget(job, dict(plan))),
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": (
                    "Bounds, clamps and lists are those of the job file, or chosen by releases that the plan pays for. "
                    f"{FILL_IN}whether anybody chose a number of the job file by a look at the rows"
                ),
                "mechanisms": _text(
                    [f"dp_pipelines {dp_pipelines.__version__}.", *what_is_published.protections(plan)]
                ),
                "justification": f"{FILL_IN}why this unit, epsilon and delta, and whether the numbers are good enough",
            },
            "administrative": {"registry_authors": [f"{FILL_IN}who fills this entry in"]},
        },
    }
    return LEAD + yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=float("inf"))


def _privacy_loss(job: Job, plan: Mapping[str, Any]) -> dict[str, Any]:
    unit = guarantee.unit_of(job)
    rows = "one row" if is_row_unit(job.unit) else f"all rows of one {unit_in_words(job.unit)}"
    each = "" if job.window is None else f", in each window of {job.window.days} days"
    return {
        "privacy_unit": unit,
        "privacy_unit_details": f"Neighbours differ by {rows}, added or removed, whatever is in them.",
        "privacy_parameters": {"epsilon": plan["accounted"]["epsilon"], "delta": plan["accounted"]["delta"]},
        "privacy_parameters_details": f"Runs: {job.budget.all_runs}, together{each}. Plan {plan['digest'][:16]}.",
    }


def _model(job: Job) -> dict[str, Any]:
    many = job.budget.all_runs > 1 or job.window is not None
    return {
        "model_name": "Central",
        "actors": "Whoever runs the job sees the rows and is trusted. Readers of releases are not, whatever they know.",
        "release_type": "Many releases" if many else "One release",
        "release_type_details": "A ledger adds up what runs have spent, and refuses what is beyond the cap of its account.",
        "data_source_type": "Dynamic" if many else "Static",
        "access_type": "Non-interactive",
    }


def _text(blocks: Iterator[Block] | list[Block]) -> str:
    """Return blocks of a page as lines of text; questions are left out, since the entry has its own."""
    lines: list[str] = []
    for block in blocks:
        if isinstance(block, str):
            lines.append(block)
        elif isinstance(block, Listed):
            lines += [f"- {item}" for item in block.items]
        elif isinstance(block, Cells):
            lines += [f"- {': '.join([row[0], ', '.join(filter(None, row[1:]))])}" for row in block.rows]
        else:
            assert isinstance(block, ToFillIn)
    return "\n".join(lines)


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, as the registry asks for."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)
