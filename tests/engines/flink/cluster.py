"""A standalone Flink out of the job server's jar: one JobManager and some TaskManagers on the loopback address.

In: the jar that pom.xml builds, a folder. Out: the address of the cluster, while the block lasts; its processes by name, so that
tests can kill one. Holds: ports are free ones, everything is bound to 127.0.0.1, all that is written lies in the folder, and no
process outlives the block. Not covered: high availability, more than one machine.

As a command it is the same until Ctrl-C: python tests/engines/flink/cluster.py JAR [TASK_MANAGERS].
"""

import contextlib
import itertools
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator

MANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
WORKER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"

OPENED = ("lang", "util", "nio", "net", "io", "lang.reflect", "text", "time", "util.concurrent")
"""Packages of Java 17 that Flink and its serialisers look into."""

CONFIGURATION = """\
jobmanager.rpc.address: 127.0.0.1
jobmanager.bind-host: 127.0.0.1
jobmanager.rpc.port: {rpc}
jobmanager.memory.process.size: 1024m
rest.address: 127.0.0.1
rest.bind-address: 127.0.0.1
rest.port: {rest}
taskmanager.host: 127.0.0.1
taskmanager.bind-host: 127.0.0.1
taskmanager.numberOfTaskSlots: 1
# A task manager that no script of Flink starts is told each part of its memory.
taskmanager.cpu.cores: 1.0
taskmanager.memory.task.heap.size: {heap}m
taskmanager.memory.task.off-heap.size: 64m
taskmanager.memory.framework.heap.size: 128m
taskmanager.memory.framework.off-heap.size: 128m
taskmanager.memory.network.min: 128m
taskmanager.memory.network.max: 128m
taskmanager.memory.managed.size: 512m
taskmanager.memory.jvm-metaspace.size: 1024m
taskmanager.memory.jvm-overhead.min: 192m
taskmanager.memory.jvm-overhead.max: 192m
# With child-first each job loads its classes again and leaks them: after some thirty jobs a task manager dies.
classloader.resolve-order: parent-first
# A batch job whose worker is lost begins again; a lost task manager is noticed soon.
restart-strategy.type: fixed-delay
restart-strategy.fixed-delay.attempts: {attempts}
restart-strategy.fixed-delay.delay: 1 s
slot.request.timeout: {slot_wait}
heartbeat.interval: 2000
heartbeat.timeout: 10000
io.tmp.dirs: {folder}/tmp
blob.storage.directory: {folder}/blobs
"""

FRAMEWORK_HEAP = 128


class Cluster:
    """A running cluster.

    Args:
        jar: with Flink in it.
        folder: for configuration, logs and temporary files.
        workers: number of TaskManagers, each with one slot.
        heap: MiB of each for its tasks. What a slot hands from a Python worker to a shuffle waits there: docs/scale.md.
        attempts: how often a job that fails begins again.
        slot_wait: milliseconds that each of these waits for slots; by itself Flink waits for five minutes.
    """

    def __init__(
        self,
        jar: pathlib.Path,
        folder: pathlib.Path,
        workers: int = 2,
        heap: int = 512,
        attempts: int = 2,
        slot_wait: int = 300_000,
    ) -> None:
        self._jar, self._folder, self._workers, self._heap = jar, folder, workers, heap
        self._attempts, self._slot_wait = attempts, slot_wait
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.port = 0

    @property
    def address(self) -> str:
        """Where it takes jobs: what `--flink_master` wants."""
        return f"127.0.0.1:{self.port}"

    def start(self, patience: float = 300.0) -> None:
        """Start it and wait until all of its slots are there.

        Raises:
            RuntimeError: it does not come up; its logs are in the folder.
        """
        for name in ("conf", "tmp", "blobs", "logs"):
            (self._folder / name).mkdir()
        rpc, self.port = free_ports(2)
        text = CONFIGURATION.format(
            rpc=rpc,
            rest=self.port,
            folder=self._folder,
            heap=self._heap,
            attempts=self._attempts,
            slot_wait=self._slot_wait,
        )
        (self._folder / "conf" / "flink-conf.yaml").write_text(text)
        self.start_manager()
        for number in range(1, self._workers + 1):
            self.start_worker(f"taskmanager-{number}")
        self.wait(patience)

    def wait(self, patience: float = 300.0) -> None:
        """Wait until all of its slots are there. Errors as for `start`."""
        end = time.monotonic() + patience
        while self.slots() < self._workers:
            dead = [name for name, process in self.processes.items() if process.poll() is not None]
            if dead or time.monotonic() > end:
                raise RuntimeError(
                    f"the cluster does not come up ({', '.join(dead) or 'too slow'}): {self._tail(dead)}"
                )
            time.sleep(0.5)

    def start_manager(self) -> None:
        """Start the JobManager."""
        self._java("jobmanager", MANAGER)

    def start_worker(self, name: str) -> None:
        """Start one TaskManager."""
        self._java(name, WORKER, "-D", f"taskmanager.resource-id={name}")

    def slots(self) -> int:
        """How many slots the cluster says that it has; 0 where nobody answers."""
        try:
            with urllib.request.urlopen(f"http://{self.address}/overview", timeout=60) as answer:
                return int(json.load(answer)["slots-total"])
        except (OSError, ValueError):
            return 0

    def kill(self, name: str) -> None:
        """End a process as a machine does that goes down."""
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait()

    def logs(self) -> str:
        """Everything that its processes have said."""
        return "".join(path.read_text(errors="replace") for path in sorted((self._folder / "logs").iterdir()))

    def stop(self) -> None:
        """End all processes."""
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _java(self, name: str, main: str, *arguments: str) -> None:
        opened = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in OPENED]
        heap = 512 if main == MANAGER else self._heap + FRAMEWORK_HEAP
        # Without the last, a thread that finds no memory is missed for ever, and its job waits.
        settings = [f"-Xmx{heap}m", "-XX:MaxMetaspaceSize=1024m", "-XX:+ExitOnOutOfMemoryError"]
        command = [shutil.which("java") or "java", *settings, *opened]
        command += ["-cp", str(self._jar), main, "-c", str(self._folder / "conf"), *arguments]
        with (self._folder / "logs" / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env={**os.environ, "TMPDIR": str(self._folder / "tmp")},
            )

    def _tail(self, names: list[str]) -> str:
        return "\n".join((self._folder / "logs" / f"{name}.log").read_text()[-2000:] for name in names)


_NEXT = itertools.count(os.getpid() * 16)


def free_ports(count: int) -> list[int]:
    """Ports that nobody has, below those that a system gives to connections by itself: none is taken before it is used.

    Each process looks from another place on, and never twice at one.
    """
    found: list[int] = []
    while len(found) < count:
        port = 15_000 + next(_NEXT) % 17_000
        with contextlib.closing(socket.socket()) as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            found.append(port)
    return found


@contextlib.contextmanager
def cluster(
    jar: pathlib.Path, workers: int = 2, heap: int = 512, attempts: int = 2, slot_wait: int = 300_000
) -> Iterator[Cluster]:
    """A cluster until the end of the block. Arguments as of `Cluster`."""
    with tempfile.TemporaryDirectory(prefix="flink-", ignore_cleanup_errors=True) as folder:
        made = Cluster(jar, pathlib.Path(folder), workers, heap, attempts, slot_wait)
        try:
            made.start()
            yield made
        except Exception:
            print(made.logs(), file=sys.stderr)  # what a job's own error is made of is told there alone
            raise
        finally:
            made.stop()


def main() -> None:
    """Run a cluster until it is interrupted."""
    with cluster(pathlib.Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else 2) as running:
        print(f"--flink_master={running.address}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.sigwait({signal.SIGINT, signal.SIGTERM})


if __name__ == "__main__":
    main()
