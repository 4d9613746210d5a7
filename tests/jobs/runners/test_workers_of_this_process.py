"""Workers in threads of this process, for runners that count them alike: who stops one of its own ends no other's."""

import contextlib
import queue
import socket
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc, endpoints_pb2
from apache_beam.runners.worker import worker_pool_main
from apache_beam.utils import thread_pool_executor

from dp_pipelines.jobs.runners import beam_engine

PATIENCE = 20.0


class Runner(beam_fn_api_pb2_grpc.BeamFnControlServicer):
    """One end of a worker's control stream, as a task manager is."""

    def __init__(self) -> None:
        self.began, self.over, self._answered = threading.Event(), threading.Event(), threading.Event()
        self._asked: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def Control(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        self.began.set()

        def listen() -> None:
            with contextlib.suppress(Exception):  # the stream broke
                for _ in requests:
                    self._answered.set()
            self.over.set()

        threading.Thread(target=listen, daemon=True).start()
        yield from iter(self._asked.get, None)

    def is_answered(self) -> bool:
        """Whether the worker still does what it is asked to."""
        self._asked.put(beam_fn_api_pb2.InstructionRequest(instruction_id="1", register={}))
        return self._answered.wait(PATIENCE)

    @contextlib.contextmanager
    def serving(self) -> Iterator[str]:
        server = grpc.server(thread_pool_executor.shared_unbounded_instance())
        beam_fn_api_pb2_grpc.add_BeamFnControlServicer_to_server(self, server)
        port = server.add_insecure_port("localhost:0")
        server.start()
        try:
            yield f"localhost:{port}"
        finally:
            self._asked.put(None)
            server.stop(1).wait()


@contextlib.contextmanager
def two_runners(pool: type[worker_pool_main.BeamFnExternalWorkerPoolServicer]) -> Iterator[tuple[Runner, Runner, Any]]:
    """Two runners, each with a worker of the same id in this process, and the pool."""
    address, server = pool.serve() if issubclass(pool, beam_engine._Workers) else pool.start()
    first, second = Runner(), Runner()
    with first.serving() as one, second.serving() as other, grpc.insecure_channel(address) as channel:
        stub = beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolStub(channel)
        for runner, at in ((first, one), (second, other)):
            control = endpoints_pb2.ApiServiceDescriptor(url=at)
            answer = stub.StartWorker(
                beam_fn_api_pb2.StartWorkerRequest(worker_id="1-1", control_endpoint=control), timeout=PATIENCE
            )
            assert not answer.error
            assert runner.began.wait(PATIENCE)
        yield first, second, stub
    server.stop(1).wait()


def stop(stub: Any) -> None:
    assert not stub.StopWorker(beam_fn_api_pb2.StopWorkerRequest(worker_id="1-1"), timeout=PATIENCE).error


def test_the_pool_listens_on_the_loopback_address_only() -> None:
    address, server = beam_engine._Workers.serve()
    host, _, port = address.rpartition(":")
    assert host == "127.0.0.1"
    with contextlib.closing(socket.socket()) as other:
        other.bind(("127.0.0.2", int(port)))  # it is taken where a server listens on every address
    server.stop(None).wait()


def test_a_runner_that_is_done_ends_no_worker_of_another() -> None:
    with two_runners(beam_engine._Workers) as (first, second, stub):
        stop(stub)
        assert second.is_answered()
        assert first.is_answered()
    assert first.over.wait(PATIENCE)  # once their runners have hung up
    assert second.over.wait(PATIENCE)


def test_the_pool_of_beam_ends_the_worker_of_another_runner() -> None:
    """The twin: why ours stands in for it. Once this fails, Beam tells workers apart and ours can go."""
    with two_runners(worker_pool_main.BeamFnExternalWorkerPoolServicer) as (_, second, stub):
        stop(stub)
        assert second.over.wait(PATIENCE)


@pytest.mark.parametrize("name", ["flink", "spark", "portable"])
def test_every_runner_whose_workers_are_threads_here_has_them_of_ours(name: str) -> None:
    given = {"flink": ["--flink_master=localhost:8081"], "spark": [], "portable": []}[name]
    found = beam_engine.configured(name, given).runner().start_and_replace_loopback_environments
    assert found is beam_engine._Serving.start_and_replace_loopback_environments
