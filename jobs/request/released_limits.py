"""Tells where a job asks for other numbers than a release has, for a page that shows the release with the titles of the job.

In: a job file, a manifest. Out: sentences. Holds: they follow from both alone. Not covered: bounds that a run chooses; conditions
on rows and new columns, which may change what a number means without changing its limits.
"""

from collections.abc import Mapping
from typing import Any

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.request.queries import queries
from dp_pipelines.jobs.spec.derived_models import weighted_columns
from dp_pipelines.jobs.spec.job_file import JobFile
from dp_pipelines.planning import limits
from dp_pipelines.report.key_text import visible

ANEW = "the page shows what was released; to have it, run the job, which is charged anew"


def differences(file: JobFile, content: Mapping[str, Any]) -> list[str]:
    """Return what a job asks for now that a release does not have: metrics, and limits of what is counted.

    Args:
        file: the job.
        content: the manifest of a release of the same dataset with the same stages.
    """
    try:
        asked = queries(file)
    except RequestError:  # a parameter or a public file is missing, which a page does not need
        return []
    found = []
    for stage in content.get("stages", ()):
        query = asked.get(stage.get("name"))
        if query is None:
            continue
        known: Mapping[str, Any] = stage.get("metrics") or {}
        of_job = {name: metric.kind for name, metric in query.metrics.items()}
        other = [name for name, kind in of_job.items() if (known.get(name) or {}).get("kind") != kind]
        if other:
            found.append(
                f"stage {visible(stage['name'])} of the job has {', '.join(map(visible, other))}, the release has not"
            )
        chosen = query.bounds.auto or any(metric.auto for metric in query.metrics.values())
        said = [] if chosen else [text for text in limits.in_words(query) if text not in stage.get("limits", ())]
        if said:
            words = "; ".join(map(visible, said))
            found.append(f"stage {visible(stage['name'])} of the job has a limit that the release has not: {words}")
    return [f"{text}; {ANEW}" for text in found]


def refuse_other_weighted_means(file: JobFile, content: Mapping[str, Any]) -> None:
    """Refuse a job whose weighted means have other columns, ranges or weights than the sums of a release.

    Their formula has the middle of the range, so that the sums of another range would give wrong numbers.

    Args:
        file: the job.
        content: the manifest of a release.

    Raises:
        RequestError: as said.
    """
    weighted = weighted_columns(file.document)
    for stage in content.get("stages", ()):
        stage_model = file.job.stages.get(stage.get("name"))
        released: Mapping[str, Any] = stage.get("metrics") or {}
        for name, metric in getattr(stage_model, "metrics", {}).items():
            column = getattr(metric, "column", None)
            known = (released.get(name) or {}).get("statistics") or {}  # their names say what is added up
            if column in weighted and known and not any(one.startswith(f"sum({column} in [") for one in known):
                message = "has another column, range or largest weight than the release, whose sums do not fit it"
                hint = "write those of the release, or run the job, which is charged anew"
                field = f"stages.{stage['name']}.metrics.{name}"
                raise file.error((), RequestError(field=field, message=message, hint=hint))
