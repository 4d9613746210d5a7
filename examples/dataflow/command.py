"""One element of a Beam pipeline that is a whole run of `dp-pipelines`: what the flex template starts on one worker.

In: the parameters of the template. Out: a release at its place. Holds: it is the ordinary command with a ledger, so a worker that
is lost, a bundle that is tried again and a template that is started twice make one release and one charge; no password stands in
a parameter or in the job. Not covered: a worker that is lost while it runs the command: the next one cannot tell whether it
still works, and says which command to give (docs/dataflow.md). Never run on the service.
"""

import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems


class RunFailed(Exception):
    """The command ended with another code than 0. Its words are public: it shows no value of any row."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """What to run.

    Args:
        job: URL of the job file, or its path in the image.
        run_id: names the run, best the scheduled date.
        output: `gs://BUCKET/FOLDER`, or a folder of the worker.
        ledger: `postgresql://USER@HOST/NAME`, without a password.
        password_secret: resource name of the ledger's password in Secret Manager, or empty.
        params: of the job, `NAME=VALUE`.
        engine: `dataflow` for a job of its own, `direct` for this one worker.
        options: of Beam, for `dataflow`.
    """

    job: str
    run_id: str
    output: str
    ledger: str
    password_secret: str = ""
    params: tuple[str, ...] = ()
    engine: str = "dataflow"
    options: tuple[str, ...] = ()


class Command(beam.DoFn):
    """Runs `dp-pipelines run`, then puts the folder into the bucket."""

    def process(self, element: Run) -> Iterator[str]:
        """The place of the release."""
        with tempfile.TemporaryDirectory(prefix="dp-run-") as folder:
            elsewhere = "://" in element.output
            published = f"{folder}/release" if elsewhere else element.output
            words = ["dp_pipelines.jobs.cli.main", "run", _local(element.job, folder), "--output", published]
            words += ["--run-id", element.run_id, "--ledger", element.ledger, "--runner", element.engine]
            for param in element.params:
                words += ["--param", param]
            _call([*words, *(element.options if element.engine == "dataflow" else ())], element.password_secret)
            if elsewhere:
                _call(["dp_pipelines.extensions.dataflow.upload", published, element.output])
        yield element.output


def _local(job: str, folder: str) -> str:
    """A job file on this machine."""
    if "://" not in job:
        return job
    path = pathlib.Path(folder) / "job.yaml"
    with FileSystems.open(job) as stream:
        path.write_bytes(stream.read())
    return str(path)


def _call(words: list[str], password_secret: str = "") -> None:
    """Run a module of ours.

    Raises:
        RunFailed: it ended with another code than 0.
    """
    module, *arguments = words
    program = f"import sys; from {module} import main; sys.exit(main())"
    password = {"PGPASSWORD": _secret(password_secret)} if password_secret else {}
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, **password},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RunFailed(f"exit code {done.returncode}: {done.stderr.strip()}")


def _secret(name: str) -> str:
    """A secret's text. It stays in this process and the environment of the command."""
    from google.cloud import secretmanager

    found = secretmanager.SecretManagerServiceClient().access_secret_version(name=name)
    return str(found.payload.data.decode())
