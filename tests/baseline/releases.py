"""The releases of all forms under a fixed seed, as text: what a change that moves code must not change.

In: the jobs of `forms.py`. Out: for each form a text with all its published files, in `releases/`. Holds: rows, numbers and
manifests are there in full, so that a diff can be read; a page is there as its digest. Parts have their roles in place of their
names; digests of plans and jobs are left out. Numbers of models are rounded to `DIGITS`, since the last bits of linear algebra
depend on the processor; everything else is exact.
Run: python tests/baseline/releases.py [FORM ..], after a change that was meant to change them.
"""

import hashlib
import importlib.metadata
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import safetensors.numpy
import yaml

from dp_pipelines.collect.domain import Choices, NumberBins, NumberGrid
from dp_pipelines.collect.question import Question
from tests.baseline import forms
from tests.golden.answers import call
from tests.golden.plan_records import ROLES, VOCABULARY
from tests.helpers.seeded_command import seeded

HERE = pathlib.Path(__file__).with_name("releases")
SEED, DIGITS = 20260107, 6
STAGE = "made"
"""The name of the one stage of each form."""

ALONE = ("--ledger", "none", "--threads", "1")
WITH_LEDGER = ("--run-id", "first", "--threads", "1")

COLLECTED, TOGETHER = "collected", "parties"
"""The forms that have no job in `forms.JOBS`."""

ALL = (*forms.JOBS, COLLECTED, TOGETHER)


def released(form: str, folder: pathlib.Path) -> str:
    """Return the release of a form as text.

    Args:
        form: one of `ALL`.
        folder: an empty one for this form.
    """
    if form == TOGETHER:
        return _of_parties(folder)
    make = _collected if form == COLLECTED else _job
    with seeded(SEED):
        make(form, folder)
        ended = call("run", folder / "job.yaml", "--output", folder / "out", *ALONE)
    assert ended.code == 0, ended.err
    return as_text(folder / "out")


def _job(form: str, folder: pathlib.Path) -> None:
    forms.write(folder)
    (folder / "job.yaml").write_text(yaml.safe_dump(forms.JOBS[form], sort_keys=False))


def _collected(_: str, folder: pathlib.Path) -> None:
    """Write reports of 300 devices to three questions, one of them answered by group of another, and the job."""
    questions = {
        "visited": Question("visited", Choices(("bakery", "dairy", "fish")), epsilon=2),
        "hours": Question("hours", NumberGrid(0, 24), epsilon=1),
        "age": Question("age", NumberBins((0, 18, 65, 120)), epsilon=1),
    }
    shops, columns = ("bakery", "dairy", "fish"), dict[str, list[int]]()
    for name, question in questions.items():
        (folder / f"{name}.json").write_text(question.to_json())
        answers = {"visited": lambda n: shops[n % 2], "hours": lambda n: n % 20, "age": lambda n: 10 + n % 60}[name]
        reports = [question.report(answers(number))["report"] for number in range(300)]
        fields = question.randomizer.fields if name != "age" else ("age",)
        columns |= {field: [report[i] for report in reports] for i, field in enumerate(fields)}
    table = pa.table({"phone": [f"phone {number}" for number in range(300)], **columns})
    pa.parquet.write_table(table, folder / "reports.parquet")
    stages = {
        "visited": {"kind": "collected", "question": "visited.json"},
        "hours": {"kind": "collected", "question": "hours.json"},
        "pairs": {"kind": "collected", "question": "visited.json", "by": "age.json", "by_columns": "age"},
    }
    source = {"parquet": "reports.parquet"}
    job = {"dataset": "baseline", "privacy_unit": "phone", "source": source, "stages": stages}
    (folder / "job.yaml").write_text(yaml.safe_dump(job, sort_keys=False))


def _of_parties(folder: pathlib.Path) -> str:
    """Run a job as three processes, each with a seed of its own."""
    from tests.extensions.two_organisations.worlds import PARTIES, World, free_ports
    from tests.extensions.two_organisations.worlds import job as of_parties

    job = of_parties(ports := free_ports(len(PARTIES)))
    job["stages"] = {STAGE: job["stages"].pop("sales")}
    world = World.made(folder, job)
    script = pathlib.Path(__file__).parents[1] / "helpers" / "seeded_command.py"
    started = [
        subprocess.Popen(
            [sys.executable, script, str(SEED + number), "run", "job.yaml", "--party", party, "--output", "out", *WITH_LEDGER],
            cwd=world.folder / party, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[2])},
        )
        for number, party in enumerate(PARTIES)
    ]  # fmt: skip
    ended = [(process.communicate(timeout=240)[1], process.returncode) for process in started]
    assert [code for _, code in ended] == [0, 0, 0], ended
    tables, *others = (as_text(world.folder / party / "out", ports) for party in PARTIES)
    same = [text.partition("== manifest.json")[0] == tables.partition("== manifest.json")[0] for text in others]
    assert all(same), "each party publishes the same tables"
    return tables


def as_text(release: pathlib.Path, ports: list[int] | None = None) -> str:
    """Return all files of a release as text."""
    manifest = json.loads((release / "manifest.json").read_text())
    names = _names(manifest, ports or [])
    sections = []
    for path in sorted(path for path in release.rglob("*") if path.is_file()):
        name = path.relative_to(release).as_posix()
        of_model = "/" in name or (name == "report.html" and any(each.is_dir() for each in release.iterdir()))
        sections.append("\n".join([f"== {name}", *_lines(path, names, of_model), ""]))
    return "\n".join(sections)


def _names(manifest: Mapping[str, Any], ports: list[int]) -> dict[str, str]:
    """Return what is replaced in texts: digests of plans and jobs, the version, ports, and names of parts."""
    names = {manifest[key]: key.upper() for key in ("run_id", "plan", "job") if key in manifest}
    version = importlib.metadata.version("dp-pipelines")
    names |= {f'"dp_pipelines": "{version}"': '"dp_pipelines": "VERSION"', f">{version}<": ">VERSION<"}
    names |= {f"127.0.0.1:{port}": f"ADDRESS {number}" for number, port in enumerate(ports)}
    names |= dict.fromkeys(re.findall(r"[0-9a-f]{32,}", json.dumps(manifest["ledger"])), "LEDGER")
    names |= {manifest["ledger"]["drawn"]: "DAY"} if manifest["ledger"].get("drawn") else {}
    names |= {f"{STAGE}.{key}": f"{STAGE}: {role}" for key, role in ROLES.items() if key}
    return names | {f"{STAGE}.{VOCABULARY}": f"{STAGE}: categories of "}


def _replaced(text: str, names: Mapping[str, str]) -> str:
    """Replace names, the longest first; names of published files stay."""
    for name, role in sorted(names.items(), key=lambda pair: -len(pair[0])):
        text = re.sub(re.escape(name) + r"(?!\.parquet)", role, text)
    return text


def _lines(path: pathlib.Path, names: Mapping[str, str], of_model: bool) -> list[str]:
    """Return the lines of one file."""
    if path.suffix == ".parquet":
        return _table(path, names)
    if path.suffix == ".safetensors":
        return [f"{name}: {_rounded(str(each.tolist()))}" for name, each in _arrays(path)]
    text = _replaced(path.read_text(), names)
    text = _rounded(text) if of_model else text
    if path.suffix == ".html":
        return [f"sha256 {hashlib.sha256(text.encode()).hexdigest()}"]
    if path.suffix != ".json":
        return text.splitlines()
    content = json.loads(text)
    if path.name == "manifest.json":
        content["files"] = sorted(content["files"])  # their digests change with what is replaced in them
        content["ledger"] = sorted(content["ledger"])  # its head depends on the hour of the run
    return _entries(content)


def _entries(content: dict[str, Any]) -> list[str]:
    """Return one line for each key, and for each element of a list of objects."""
    lines = []
    for key, value in content.items():
        several = isinstance(value, list) and value and isinstance(value[0], dict)
        lines += [f"{key}: {json.dumps(each)}" for each in (value if several else [value])]
    return lines


def _table(path: pathlib.Path, names: Mapping[str, str]) -> list[str]:
    """Return the schema with its metadata, how rows are grouped and compressed, and every row."""
    file = pa.parquet.ParquetFile(path)
    schema, metadata = file.schema_arrow, file.metadata
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    columns = ", ".join(f"{field.name} {field.type}{'' if field.nullable else ' not null'}" for field in schema)
    notes = {key.decode(): value.decode() for key, value in (schema.metadata or {}).items()}
    compression = sorted({group.column(place).compression for group in groups for place in range(group.num_columns)})
    return [
        f"columns: {columns}",
        f"metadata: {_replaced(json.dumps(notes), names)}",
        f"groups of rows: {[group.num_rows for group in groups]} {compression}",
        *(repr(list(row.values())) for row in file.read().to_pylist()),
    ]


def _arrays(path: pathlib.Path) -> list[tuple[str, np.ndarray]]:
    return sorted(safetensors.numpy.load_file(path).items())


def _rounded(text: str) -> str:
    """Return a text whose numbers with a fraction have at most `DIGITS` digits, without digests of unrounded numbers.

    >>> _rounded("a1.5 0.1234567890123 -2e-07")
    'a1.5 0.123457 -2e-07'
    """
    text = re.sub(r'"sha256": ?"[0-9a-f]{64}"', '"sha256": "DIGEST"', text)
    return re.sub(r"-?\d+\.\d+(?:e[-+]?\d+)?", lambda match: f"{float(match[0]):.{DIGITS}g}", text)


def file_of(form: str) -> pathlib.Path:
    """Return the file of a form in `releases/`."""
    return HERE / f"{form.replace(' ', '_')}.txt"


def main(chosen: list[str]) -> None:
    """Write the files of these forms, or of all."""
    HERE.mkdir(exist_ok=True)
    for form in chosen or ALL:
        with tempfile.TemporaryDirectory() as place:
            os.environ["XDG_STATE_HOME"] = place
            (pathlib.Path(place) / "job").mkdir()
            file_of(form).write_text(released(form, pathlib.Path(place) / "job"))


if __name__ == "__main__":
    os.environ["DP_PIPELINES_PROGRESS_SECONDS"] = "0"
    main(sys.argv[1:])
