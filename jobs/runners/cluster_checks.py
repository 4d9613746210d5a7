"""Checks a runner from this machine: Java, jars, ports, what a Flink cluster reports about itself.

In: names and addresses. Out: findings, with a hint if something is wrong. Holds: no check takes longer than some
seconds; of another machine's answers, only numbers and versions are shown; folders created for a check are removed. Not
covered: fixing anything.
"""

import contextlib
import dataclasses
import http.client
import json
import pathlib
import re
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

from dp_pipelines.jobs.runners.runner_rules import Setup, host_and_port, is_here

PATIENCE = 5.0
"""Seconds for an answer over the network; Java takes up to three times as long."""

OLDEST_JAVA = 11

LEAST_TEMPORARY = 2**30
"""If fewer bytes are free for temporary files, a run should not start without thought."""

DRIVERS = {
    "flink": "org/apache/beam/runners/flink/FlinkJobServerDriver.class",
    "spark": "org/apache/beam/runners/spark/SparkJobServerDriver.class",
}
"""What a job server's jar contains, or one that it lists."""


@dataclasses.dataclass(frozen=True)
class Said:
    """A finding and its remedy; no remedy if all is well."""

    said: str
    hint: str = ""


@contextlib.contextmanager
def there_meanwhile(folder: pathlib.Path) -> Iterator[None]:
    """A folder until the end of the block. Whatever had to be created for it is removed again, unless it is in use by then."""
    made = [above for above in (folder, *folder.parents) if not above.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    finally:
        for above in made:
            with contextlib.suppress(OSError):
                above.rmdir()


def java(launcher: str) -> Said:
    """The Java that would start a job server."""
    hint = f"install Java {OLDEST_JAVA} or newer, or name one with --job_server_java_launcher"
    if shutil.which(launcher) is None:
        return Said(f"{launcher!r} is not a command on this machine", hint)
    try:
        done = subprocess.run([launcher, "-version"], capture_output=True, text=True, timeout=3 * PATIENCE)
    except (OSError, subprocess.TimeoutExpired):
        return Said(f"{launcher!r} does not start", hint)
    found = re.search(r'version "(?:1\.)?(\d+)([\d._]*)', done.stderr + done.stdout)
    if done.returncode or found is None:
        return Said(f"{launcher!r} is not Java", hint)
    return Said(f"version {found[1]}{found[2]}", "" if int(found[1]) >= OLDEST_JAVA else hint)


def jar(name: str, options: Mapping[str, Any]) -> Said:
    """The job server's jar."""
    given = options.get(f"{name}_job_server_jar")
    if not given:
        folder = pathlib.Path(options.get("jar_cache_dir") or pathlib.Path.home() / ".apache_beam/cache/jars")
        version = options.get("flink_version") if name == "flink" else options.get("spark_version")
        cached = sorted(folder.glob(f"beam-runners-{name}-{version}-job-server-*.jar")) if folder.is_dir() else []
        here = (
            "is already here from an earlier run"
            if cached
            else "is not here yet; Beam downloads it when the run begins"
        )
        return Said(f"Beam's own for {name} {version} {here}")
    if "://" in str(given):
        return Said("is named by a URL; Beam downloads it when the run begins")
    path = pathlib.Path(str(given))
    hint = f"give a file with --{name}_job_server_jar, or leave it out: Beam then downloads its own"
    if not path.is_file():
        return Said(f"{str(path)!r} does not exist", hint)
    try:
        if not any(DRIVERS[name] in file.namelist() for file in _jars(path)):
            return Said(f"{str(path)!r} is not a job server for {name}", hint)
    except (OSError, zipfile.BadZipFile):
        return Said(f"{str(path)!r} is not a jar", hint)
    version = version_in(path)
    return Said(f"{path.name}" + (f", for Flink {version}" if version else ""))


def _jars(path: pathlib.Path) -> Iterator[zipfile.ZipFile]:
    """A jar, and those of a runner that its manifest lists."""
    with zipfile.ZipFile(path) as first:
        yield first
        with contextlib.suppress(KeyError):
            listed = re.sub(r"\r?\n ", "", first.read("META-INF/MANIFEST.MF").decode())
            classpath = re.search(r"^Class-Path: (.*)$", listed, re.MULTILINE)
            for name in classpath[1].split() if classpath else []:
                if "beam-runners" in name and (path.parent / name).is_file():
                    with zipfile.ZipFile(path.parent / name) as other:
                        yield other


def version_in(path: pathlib.Path) -> str:
    """The Flink version in a job server's jar; empty if the jar does not say."""
    with contextlib.suppress(OSError, zipfile.BadZipFile, KeyError), zipfile.ZipFile(path) as file:
        text = file.read(".flink-runtime.version.properties").decode()
        found = re.search(r"^project.version=([\d.]+)", text, re.MULTILINE)
        return found[1] if found else ""
    return ""


def free_port(port: int) -> Said:
    """Whether a port of this machine can be taken."""
    with contextlib.closing(socket.socket()) as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("", port))
        except (OSError, OverflowError):
            return Said(f"{port} is taken", "choose another, or leave it out")
    return Said(f"{port} is free")


def listens(address: str) -> Said:
    """Whether anything answers at an address."""
    host, port = host_and_port(address)
    try:
        with socket.create_connection((host, port or 80), timeout=PATIENCE):
            return Said(f"answers at {address}")
    except (OSError, OverflowError, UnicodeError):
        return Said(f"nothing answers at {address}", "start it, or correct the address")


def flink(setup: Setup, options: Mapping[str, Any]) -> Iterator[Said]:
    """What a Flink cluster says about itself."""
    base = setup.master if "://" in setup.master else f"http://{setup.master}"
    overview = rest(base, "/overview")
    if overview is None:
        yield Said(f"nothing at {base} answers like Flink", "start the cluster, or correct --flink_master")
        return
    slots, free = (int(overview.get(name) or 0) for name in ("slots-total", "slots-available"))
    version = re.sub(r"[^\w.-]", "", str(overview.get("flink-version")))[:20]
    wanted = slots_asked(options)
    said = f"Flink {version} with {int(overview.get('taskmanagers') or 0)} task managers, {free} of {slots} slots free"
    hint = "" if slots >= wanted else f"start task managers: {wanted} slots are needed"
    yield Said(said, hint)
    if setup.server in ("jar", "uber"):
        path = options.get("flink_job_server_jar")
        ours = version_in(pathlib.Path(str(path))) if path else str(options.get("flink_version"))
        if ours and ours.split(".")[:2] != version.split(".")[:2]:
            yield Said(
                f"is Flink {version}, but the job server is for {ours}", "use the job server for the cluster's version"
            )
    if setup.environment == "LOOPBACK":
        managers = (rest(base, "/taskmanagers") or {}).get("taskmanagers") or []
        places = [
            re.search(r"@([^:/]+):", str(manager.get("path"))) for manager in managers if isinstance(manager, dict)
        ]
        if any(place and not is_here(place[1]) and not _ours(place[1]) for place in places):
            hint = "write --environment_type=PROCESS or EXTERNAL: docs/runners.md"
            yield Said("has task managers on other machines, which cannot reach workers in this process", hint)


def slots_asked(options: Mapping[str, Any]) -> int:
    """How many slots of a cluster a run asks for.

    >>> slots_asked({"parallelism": 2}), slots_asked({"parallelism": -1}), slots_asked({})
    (2, 1, 1)
    """
    return max(int(options.get("parallelism") or -1), 1)


def _ours(host: str) -> bool:
    """Whether an address is one of this machine's own."""
    with contextlib.suppress(OSError), contextlib.closing(socket.socket()) as tried:
        tried.bind((host, 0))
        return True
    return False


def rest(base: str, path: str) -> dict[str, Any] | None:
    """The content of a page of a Flink cluster; None if there is no answer."""
    if not base.startswith(("http://", "https://")):
        return None
    try:
        with urllib.request.urlopen(base.rstrip("/") + path, timeout=PATIENCE) as answer:  # noqa: S310 - the scheme is known
            found = json.loads(answer.read(2**22))
    except (OSError, ValueError, http.client.HTTPException, RecursionError):  # it may not be Flink that answers
        return None
    return found if isinstance(found, dict) else None
