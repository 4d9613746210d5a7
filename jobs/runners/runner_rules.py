"""The requested runner and its requirements, decided by public facts before anything is read or charged.

In: a name and options of Beam. Out: the options with what the runner needs, and the facts that `doctor` checks; or a
refusal. Holds: every runner is named explicitly; workers must see the local files of the job and the private staging
folder, and if public facts show that they cannot, the runner is refused. Not covered: whether any of it exists
(`doctor`); running (`engines`). Imports no Beam: `--help` and a refused request need none.
"""

import dataclasses
import hashlib
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from dp_pipelines import extensions
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.runners import extension_runner

OF_CORE = ("local", "direct", "portable", "flink", "spark")
"""Runners whose workers see the files of this machine, as the rules below make sure."""

NAMES = (*OF_CORE, *extensions.built_in(extension_runner.RUNNER))
"""All runners that are installed; those of extensions have workers elsewhere."""

DEFAULT = "local"
"""The runner where none is named."""

DIRECT_IN_PROCESS = (
    "is not needed: `direct` is Beam's FnApiRunner, in this process; Beam's DirectRunner may download another"
)
REFUSED = {
    "dask": "loses steps: of several branches it runs only the last, and it mixes outputs that must stay separate",
    "prism": "is a program that Beam downloads without checking it",
    "bundlebaseddirect": "is only for testing Beam",
    "interactive": "keeps the rows of every step in a cache",
    "switchingdirect": DIRECT_IN_PROCESS,
    "fnapi": DIRECT_IN_PROCESS,
    "kafkastreams": "was never tested",
}
"""Runners of Beam that are not offered, and why."""

KEYS_OF_JOBS: Mapping[str, str] = {
    "--epsilon": "in the job's budget, e.g. budget: {epsilon: 2, delta: 1.0e-6}",
    "--delta": "in the job's budget, e.g. budget: {epsilon: 1, delta: 1.0e-6}",
    "--runs": "in the job's budget, e.g. budget: {epsilon: 1, delta: 1.0e-6, runs: 52}",
    "--dataset": "in the job, as dataset:",
    "--unit": "in the job, as privacy_unit:",
    "--source": "in the job, as source:",
    "--where": "in the job, as where:",
    "--limit": "in a stage of the job, as limit:",
    "--order-by": "in a stage of the job, as order_by:",
}
"""Options that people look for, and where what they mean stands."""

LOCAL_MASTERS = ("[local]", "[auto]")
"""The value of `--flink_master` if the job server runs its own Flink."""

QUICKER_ON_FLINK = ("object_reuse", "faster_copy")
"""Options of Beam's Flink runner that avoid copying each element between chained steps. To Java, elements are bytes."""

SHARED = "every worker must see the files of the job and the output folder under the same path"

IN_PROCESS = ("beam:env:embedded_python:v1", "beam:env:embedded_python_grpc:v1")
"""Environments with workers inside the job service, which must then be the one in this process."""


def refuse_key_of_job(option: str) -> None:
    """Refuse an option whose meaning stands in the job file.

    Args:
        option: its name.

    Raises:
        RequestError: as said.
    """
    if place := KEYS_OF_JOBS.get(option):
        raise RequestError(
            field=option, message=f"is no option of this command: it stands {place}", hint="edit the job"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setup:
    """How to reach a runner, according to the options.

    Args:
        name: of the runner.
        environment: how workers are started: LOOPBACK, PROCESS, EXTERNAL, or one of `IN_PROCESS`; empty for `direct`.
        server: what receives the pipeline: `none`, `embed` (in this process), `jar` (a Java process that we start),
            `uber` (the cluster itself, given a jar), or an address `host:port`.
        master: the address of the cluster; empty if the job server runs its own or knows it.
        command: the command that starts a worker (PROCESS), or empty.
        pool: the address of a pool of workers (EXTERNAL), or empty.
        defaults: options of Beam that the runner needs but were not given.
    """

    name: str
    environment: str = ""
    server: str = "none"
    master: str = ""
    command: str = ""
    pool: str = ""
    defaults: tuple[str, ...] = ()

    @property
    def here(self) -> bool:
        """Whether everything that the options name is on this machine."""
        places = [self.master, self.server if ":" in self.server else ""]
        return all(is_here(place) for place in places if place)

    @property
    def endpoint(self) -> str:
        """Where another process can ask about its jobs, without secrets; empty if they end with this process.

        >>> Setup(name="flink", server="jar", master="cluster:8081").endpoint, Setup(name="spark", server="jar").endpoint
        ('http://cluster:8081', '')
        """
        if ":" in self.server:
            return f"grpc://{_without_secrets(self.server)}"
        return self.cluster

    @property
    def cluster(self) -> str:
        """Where Flink's REST interface is, without secrets; empty if no option says so.

        >>> Setup(name="flink", server="jobs:8099", master="https://me:secret@cluster").cluster
        'https://cluster'
        """
        if self.name != "flink" or not self.master:
            return ""
        scheme = "https" if self.master.lower().startswith("https://") else "http"
        return f"{scheme}://{_without_secrets(self.master)}"


def check_name(name: str) -> str:
    """The name, if it is one of ours.

    Raises:
        RequestError: it is not.
    """
    if name in NAMES:
        return name
    try:
        extensions.refuse_missing(extension_runner.RUNNER, name)
    except RequestError as error:
        raise RequestError(field=f"--runner {name}", message=error.message, hint=error.hint) from None
    if name in extensions.third_party(extension_runner.RUNNER):
        return name
    short = name.lower().replace("_", "").removesuffix("runner")
    listed = "one of " + ", ".join(NAMES)
    if short in REFUSED:
        raise RequestError(field=f"--runner {name}", message=f"is refused: it {REFUSED[short]}", hint=listed)
    hint = f"write --runner {short}" if short in NAMES else listed
    raise RequestError(field=f"--runner {name}", message="unknown runner", hint=hint)


def is_elsewhere(name: str) -> bool:
    """Return True if workers of a runner see no folder of this machine.

    Args:
        name: of the runner.

    Raises:
        RequestError: it is none.

    >>> is_elsewhere("flink")
    False
    """
    return check_name(name) not in OF_CORE


def setup(name: str, given: Mapping[str, Any]) -> Setup:
    """How to reach a runner.

    Args:
        name: of the runner.
        given: all options of Beam by name, as Beam's parser gives them.

    Raises:
        RequestError: public facts show that workers could not do their work.

    >>> setup("portable", {}).defaults
    ('--job_endpoint=embed', '--environment_type=LOOPBACK')
    >>> setup("flink", {"flink_master": "localhost:8081"}).master
    'localhost:8081'
    """
    if is_elsewhere(name):
        return Setup(name=name, defaults=extension_runner.load(name).defaults(given))
    if name in ("local", "direct"):
        return Setup(name=name)
    server, master, defaults = _reached(name, given)
    found = Setup(name=name, server=server, master=master)
    environment = _environment(given, found)
    if name == "flink":
        defaults = (*defaults, *(f"--{option}" for option in QUICKER_ON_FLINK if not given.get(option)))
    if not given.get("environment_type"):
        defaults = (*defaults, f"--environment_type={environment}")
    command, pool = _workers(given, environment)
    return dataclasses.replace(found, environment=environment, command=command, pool=pool, defaults=defaults)


def _reached(name: str, given: Mapping[str, Any]) -> tuple[str, str, tuple[str, ...]]:
    """What receives the pipeline, the cluster's address, and missing options."""
    endpoint = str(given.get("job_endpoint") or "")
    if endpoint and endpoint != "embed" and not re.fullmatch(r".+:\d+", endpoint):
        raise RequestError(field="--job_endpoint", message="is not an address", hint="write host:port")
    if name == "portable":
        return (endpoint or "embed"), "", () if endpoint else ("--job_endpoint=embed",)
    if endpoint == "embed":
        message = "is the job service in this process, which runs the pipeline itself"
        raise RequestError(field="--job_endpoint=embed", message=message, hint="write --runner portable")
    if name == "flink":
        master = str(given.get("flink_master") or LOCAL_MASTERS[0]).strip()
        master = "" if master in LOCAL_MASTERS else master
        uber = bool(given.get("flink_submit_uber_jar")) and bool(master)
    else:
        master = str(given.get("spark_master_url") or "local[2]").strip()
        master = "" if re.fullmatch(r"local(\[.*\])?", master) else master
        uber = bool(given.get("spark_submit_uber_jar"))
        master = str(given.get("spark_rest_url") or "") if uber else master
    if endpoint:
        return endpoint, master, ()
    return ("uber" if uber else "jar"), master, ()


def _environment(given: Mapping[str, Any], found: Setup) -> str:
    """How workers are started.

    Raises:
        RequestError: they could not see the job's files, or would be expected on another machine.
    """
    field, chosen = "--environment_type", str(given.get("environment_type") or "")
    if not chosen:
        if found.here:
            return "LOOPBACK"
        message = f"is required, because the cluster at {found.master or found.server} is not on this machine; {SHARED}"
        raise RequestError(field=field, message=message, hint="write PROCESS or EXTERNAL: docs/runners.md")
    if chosen in IN_PROCESS:
        if found.server != "embed":
            raise RequestError(field=field, message="has workers in this process, which only `portable` uses")
        return chosen
    if chosen not in ("LOOPBACK", "PROCESS", "EXTERNAL", "DOCKER"):
        raise RequestError(field=field, message="must be LOOPBACK, PROCESS or EXTERNAL")
    if chosen == "DOCKER":
        message = f"is refused: Beam's containers mount no folder of the machine, and {SHARED}"
        hint = "start containers that mount it and run a worker pool, and write EXTERNAL: docs/runners.md"
        raise RequestError(field=f"{field}=DOCKER", message=message, hint=hint)
    if chosen == "LOOPBACK" and not found.here:
        message = "puts the workers into this process, which a cluster on another machine cannot reach"
        raise RequestError(
            field=f"{field}=LOOPBACK", message=message, hint="write PROCESS or EXTERNAL: docs/runners.md"
        )
    if chosen == "PROCESS" and found.server == "embed":
        message = "is not supported by the job service in this process"
        raise RequestError(field=f"{field}=PROCESS", message=message, hint="write LOOPBACK or EXTERNAL")
    return chosen


def _workers(given: Mapping[str, Any], environment: str) -> tuple[str, str]:
    """The command that starts a worker, and the address of a pool."""
    listed = [str(item).partition("=") for item in given.get("environment_options") or []]
    options = {name: value for name, _, value in listed}
    config = str(given.get("environment_config") or "")
    if environment == "PROCESS":
        command = options.get("process_command") or (_of_json(config, "command") if config else "")
        if not command:
            hint = "write --environment_options=process_command=PATH"
            raise RequestError(
                field="--environment_type=PROCESS", message="needs a command that starts a worker", hint=hint
            )
        return command, ""
    if environment == "EXTERNAL":
        if "external_service_address" in options:
            message = "is an option that makes Beam 2.77 fail"
            hint = "write --environment_config=HOST:PORT instead"
            raise RequestError(field="--environment_options=external_service_address", message=message, hint=hint)
        pool = _of_json(config, "url") if config.startswith("{") else config
        if not re.fullmatch(r".+:\d+", pool):
            hint = "write --environment_config=HOST:PORT"
            raise RequestError(
                field="--environment_type=EXTERNAL", message="needs the address of a worker pool", hint=hint
            )
        return "", pool
    return "", ""


def _of_json(text: str, key: str) -> str:
    import json

    try:
        return str(json.loads(text)[key])
    except (ValueError, KeyError, TypeError):
        raise RequestError(field="--environment_config", message=f"must be JSON with the key {key!r}") from None


def host_and_port(address: str) -> tuple[str, int | None]:
    """The parts of an address, with or without a scheme.

    >>> host_and_port("http://cluster:8081"), host_and_port("[::1]:80"), host_and_port("cluster")
    (('cluster', 8081), ('::1', 80), ('cluster', None))
    """
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        return parts.hostname or "", parts.port
    except ValueError:
        return "", None


def _without_secrets(address: str) -> str:
    """Host, port and path of an address: no user, no password, nothing after a question mark.

    >>> _without_secrets("http://user:secret@cluster:8081/flink/?key=secret"), _without_secrets("http://user:a/b@cluster:8081")
    ('cluster:8081/flink', '')
    """
    host, port = host_and_port(address)
    if not host:  # not an address: what looks like a path may be the rest of a password
        return ""
    path = urlsplit(address if "://" in address else f"//{address}").path.rstrip("/")
    return (f"[{host}]" if ":" in host else host) + (f":{port}" if port else "") + path


def is_here(address: str) -> bool:
    """Whether an address names this machine, judged without a network request.

    >>> is_here("http://localhost:8081"), is_here("127.0.0.1:80"), is_here("cluster:8081")
    (True, True, False)
    """
    host = host_and_port(address)[0].lower()
    import socket  # here, since --help needs none

    return host in ("localhost", "::1", socket.gethostname().lower()) or host.startswith("127.")


def run_key(account: str, run_id: str) -> str:
    """A fixed name for a run that reveals neither its account nor its id.

    >>> run_key("shop", "2026-W01") == run_key("shop", "2026-W01") != run_key("shop", "2026-W02")
    True
    """
    return hashlib.sha256(f"{len(account)}:{account}{run_id}".encode()).hexdigest()[:24]
