"""The expansion service: on the loopback address only, with our transforms only, and nothing else on its port.

In: the started command, requests as other programs send them. Holds: a request that brings code is refused before it runs.
Not covered: a pipeline in Java (tests/engines/test_java.py).
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import grpc
import pyarrow as pa
import pyarrow.parquet
import pytest
from apache_beam import coders
from apache_beam.internal import pickler
from apache_beam.portability import common_urns, python_urns
from apache_beam.portability.api import (
    beam_artifact_api_pb2,
    beam_artifact_api_pb2_grpc,
    beam_expansion_api_pb2,
    beam_expansion_api_pb2_grpc,
    beam_fn_api_pb2,
    beam_fn_api_pb2_grpc,
    beam_runner_api_pb2,
    schema_pb2,
)
from apache_beam.runners.pipeline_context import PipelineContext
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.fully_qualified_named_transform import (
    PYTHON_FULLY_QUALIFIED_NAMED_TRANSFORM_URN,
    FullyQualifiedNamedTransform,
)
from apache_beam.transforms.window import GlobalWindows
from apache_beam.typehints.row_type import RowTypeConstraint
from apache_beam.typehints.schemas import PYTHON_ANY_URN, LogicalType, typing_to_runner_api
from apache_beam.utils.python_callable import PythonCallableWithSource

from dp_pipelines.jobs.beam_yaml import expansion, transforms
from dp_pipelines.jobs.spec.job_file import Stage
from dp_pipelines.transforms import shard_counts
from tests.helpers.source import ROOT

SETTINGS = {
    "epsilon": 1.0,
    "delta": 1e-6,
    "ledger": "none",
    "privacy_unit": "customer",
    "partition_by": "region",
    "bounds": "{max_partitions_contributed: 1, max_contributions_per_partition: 1}",
    "metrics": "{orders: {kind: count}}",
}
AGGREGATE = "dp_pipelines.jobs.beam_yaml.transforms.DpAggregate"


@pytest.fixture(scope="module")
def service() -> Iterator[tuple[str, int]]:
    """The address at which the started command says that it listens, and its process."""
    command = [sys.executable, "-m", "dp_pipelines.jobs.beam_yaml.expansion", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        address = next(
            match[1] for line in process.stderr if (match := re.match(r"expanding for .*: (127\.0\.0\.1:\d+)$", line))
        )
        yield address, process.pid
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def listening(pid: int) -> set[tuple[str, int]]:
    """Addresses (in the kernel's hexadecimal form) and ports at which a process listens."""
    inodes = set()
    for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        if link.exists() or os.path.islink(link):
            inodes.add(os.readlink(link).removeprefix("socket:[").removesuffix("]"))
    sockets = set()
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                host, port = fields[1].split(":")
                sockets.add((host, int(port, 16)))
    return sockets


THIS_MACHINE = ("0100007F", "0000000000000000FFFF00000100007F")  # 127.0.0.1, also as an address of IPv6


@pytest.mark.skipif(not pathlib.Path("/proc/self/net/tcp").exists(), reason="needs Linux")
def test_it_listens_on_the_loopback_address_and_nowhere_else(service: tuple[str, int]) -> None:
    address, pid = service
    ((host, port),) = listening(pid)
    assert host in THIS_MACHINE
    assert port == int(address.rpartition(":")[2])


def test_it_hands_out_no_file_and_starts_no_worker(service: tuple[str, int], tmp_path: pathlib.Path) -> None:
    (tmp_path / "private.txt").write_text("a row")
    payload = beam_runner_api_pb2.ArtifactFilePayload(path=str(tmp_path / "private.txt")).SerializeToString()
    artifact = beam_runner_api_pb2.ArtifactInformation(
        type_urn=common_urns.artifact_types.FILE.urn, type_payload=payload
    )
    with grpc.insecure_channel(service[0]) as channel:
        artifacts = beam_artifact_api_pb2_grpc.ArtifactRetrievalServiceStub(channel)
        with pytest.raises(grpc.RpcError) as refused:
            list(artifacts.GetArtifact(beam_artifact_api_pb2.GetArtifactRequest(artifact=artifact)))
        assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED
        workers = beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolStub(channel)
        with pytest.raises(grpc.RpcError) as refused:
            workers.StartWorker(beam_fn_api_pb2.StartWorkerRequest(worker_id="w"))
        assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED


def request_of(constructor: str, **settings: object) -> beam_expansion_api_pb2.ExpansionRequest:
    """A request as a program in Java sends it: rows of standard coders, whose producer is an impulse."""
    request = beam_expansion_api_pb2.ExpansionRequest(namespace="java")
    components = request.components
    schema = typing_to_runner_api(RowTypeConstraint.from_fields([("customer", str), ("region", str)]))
    components.coders["c"].spec.urn = common_urns.coders.ROW.urn
    components.coders["c"].spec.payload = schema.row_type.schema.SerializeToString()
    components.coders["g"].spec.urn = common_urns.coders.GLOBAL_WINDOW.urn
    context = PipelineContext(components)
    windowing = Windowing(GlobalWindows()).to_runner_api(context)
    components.MergeFrom(context.to_runner_api())
    components.windowing_strategies["w"].CopyFrom(windowing)
    components.pcollections["p"].coder_id = "c"
    components.pcollections["p"].windowing_strategy_id = "w"
    components.pcollections["p"].is_bounded = beam_runner_api_pb2.IsBounded.BOUNDED
    components.transforms["t"].spec.urn = common_urns.primitives.IMPULSE.urn
    components.transforms["t"].outputs["out"] = "p"
    request.transform.unique_name = "Release"
    request.transform.inputs["in"] = "p"
    request.transform.spec.urn = PYTHON_FULLY_QUALIFIED_NAMED_TRANSFORM_URN
    payload = FullyQualifiedNamedTransform(constructor, (), settings).to_runner_api_parameter(None)[1]
    request.transform.spec.payload = payload.SerializeToString()
    return request


def expanded(
    address: str, request: beam_expansion_api_pb2.ExpansionRequest
) -> beam_expansion_api_pb2.ExpansionResponse:
    with grpc.insecure_channel(address) as channel:
        return beam_expansion_api_pb2_grpc.ExpansionServiceStub(channel).Expand(request)


def test_our_transform_expands_without_anything_to_stage(service: tuple[str, int]) -> None:
    response = expanded(service[0], request_of(AGGREGATE, **SETTINGS))
    assert not response.error
    environments = list(response.components.environments.values())
    assert {environment.urn for environment in environments} <= {
        python_urns.EMBEDDED_PYTHON_GRPC,
        "beam:env:default:v1",
    }
    assert not any(environment.dependencies for environment in environments)


@pytest.mark.parametrize(
    "name",
    [
        "apache_beam.Create",
        "dp_pipelines.jobs.beam_yaml.transforms.os.system",
        "dp_pipelines.jobs.beam_yaml.transforms.DpReadParquet",
        "dp_pipelines.jobs.cli.main.main",
        "__callable__",
    ],
)
def test_no_other_name_is_expanded(service: tuple[str, int], name: str) -> None:
    message = expanded(service[0], request_of(name, command="true")).error
    assert message.startswith("cannot be expanded here; choose one of ")


class Trap:
    """Leaves a mark where it is unpickled."""

    def __init__(self, mark: pathlib.Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return (pathlib.Path.write_text, (self.mark, "unpickled"))


def test_code_that_a_request_brings_is_refused_and_not_run(service: tuple[str, int], tmp_path: pathlib.Path) -> None:
    mark = tmp_path / "mark"
    pickled = coders.PickleCoder().encode(Trap(mark))
    as_coder, as_transform, as_window, alone = (request_of(AGGREGATE, **SETTINGS) for _ in range(4))
    as_coder.components.coders["c"].spec.urn = python_urns.PICKLED_CODER
    as_coder.components.coders["c"].spec.payload = pickled
    as_coder.output_coder_requests["o"] = "c"
    as_transform.components.transforms["t"].spec.urn = python_urns.PICKLED_TRANSFORM
    as_transform.components.transforms["t"].spec.payload = pickled
    as_transform.components.transforms["t"].outputs["o"] = "p"
    as_window.components.windowing_strategies["w"].window_fn.urn = python_urns.PICKLED_WINDOWFN
    as_window.components.windowing_strategies["w"].window_fn.payload = pickled
    alone.transform.spec.urn = python_urns.PICKLED_TRANSFORM
    alone.transform.spec.payload = pickled
    for request in (as_coder, as_transform, as_window):
        assert re.match("cannot take 'beam:.*' from another program", expanded(service[0], request).error)
    assert expanded(service[0], alone).error.startswith("only transforms that are called by name are expanded here")
    assert not mark.exists()


def test_a_function_as_text_is_neither_a_setting_nor_a_cell(service: tuple[str, int]) -> None:
    """Beam compiles such a text when it decodes it."""
    text = PythonCallableWithSource("lambda: None")
    request = request_of(AGGREGATE, **SETTINGS, where=text)
    assert expanded(service[0], request).error == "settings must be texts, numbers, or lists and mappings of these"
    request = request_of(AGGREGATE, **SETTINGS)
    kind = typing_to_runner_api(RowTypeConstraint.from_fields([("f", PythonCallableWithSource)]))
    request.components.coders["c"].spec.payload = kind.row_type.schema.SerializeToString()
    assert expanded(service[0], request).error == CODE


CODE = "columns must not hold functions or objects; use types that all languages know"


def any_type(within: str) -> schema_pb2.FieldType:
    """The type of any object of Python, whose values run code when they are decoded, in a place of a column's type."""
    code = schema_pb2.FieldType(logical_type=schema_pb2.LogicalType(urn=PYTHON_ANY_URN))
    inner = schema_pb2.Schema(fields=[schema_pb2.Field(name="f", type=code)])
    text = schema_pb2.FieldType(atomic_type=schema_pb2.STRING)
    return {
        "column": code,
        "list": schema_pb2.FieldType(array_type=schema_pb2.ArrayType(element_type=code)),
        "iterable": schema_pb2.FieldType(iterable_type=schema_pb2.IterableType(element_type=code)),
        "map": schema_pb2.FieldType(map_type=schema_pb2.MapType(key_type=text, value_type=code)),
        "row": schema_pb2.FieldType(row_type=schema_pb2.RowType(schema=inner)),
        "representation": schema_pb2.FieldType(
            logical_type=schema_pb2.LogicalType(urn=common_urns.decimal.urn, representation=code)
        ),
        "argument": schema_pb2.FieldType(
            logical_type=schema_pb2.LogicalType(urn=common_urns.decimal.urn, argument_type=code)
        ),
    }[within]


PLACES = ("column", "list", "iterable", "map", "row", "representation", "argument")


@pytest.mark.parametrize("within", [*PLACES, "option", "option of a column"])
def test_columns_and_options_hold_no_objects_of_python(service: tuple[str, int], within: str) -> None:
    schema = schema_pb2.Schema(
        fields=[schema_pb2.Field(name="f", type=any_type("column" if "option" in within else within))]
    )
    if "option" in within:
        schema.fields[0].type.CopyFrom(schema_pb2.FieldType(atomic_type=schema_pb2.STRING))
        place = schema.options if within == "option" else schema.fields[0].options
        place.append(schema_pb2.Option(name="o", type=any_type("column")))
    request = request_of(AGGREGATE, **SETTINGS)
    request.components.coders["c"].spec.payload = schema.SerializeToString()
    assert expanded(service[0], request).error == CODE


def test_every_coder_and_logical_type_of_this_beam_is_known_or_refused_on_purpose() -> None:
    """A new one of a later Beam is refused until somebody has looked at it."""
    coders_of_beam = {coder.urn for coder in common_urns.coders.__dict__.values() if hasattr(coder, "urn")}
    refused = {getattr(common_urns.coders, name).urn for name in ("PARAM_WINDOWED_VALUE", "CUSTOM_WINDOW", "SCHEMA")}
    assert coders_of_beam - expansion.CODERS == refused
    known = set(LogicalType._known_logical_types.by_urn)
    assert known - expansion.LOGICAL_TYPES == {common_urns.python_callable.urn}


def names_in_schema(part: dict[str, Any], defined: dict[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Dotted names of all settings in a part of a JSON schema, with their descriptions."""
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        yield from names_in_schema(defined[name], {key: held for key, held in defined.items() if key != name}, before)
    for key, held in part.get("properties", {}).items():
        yield f"{before}{key}", held.get("description", "")
        yield from names_in_schema(held, defined, f"{before}{key}.")
    for way in ("anyOf", "oneOf", "allOf"):
        for held in part.get(way, ()):
            yield from names_in_schema(held, defined, before)


def settings_that_name_files() -> set[str]:
    """Settings of a stage whose name or description says that they name a file, a folder or a URL."""
    schema = Stage.model_json_schema()
    named = names_in_schema(schema, schema["$defs"])
    words = re.compile("file|folder|path|url", re.IGNORECASE)
    return {name for name, description in named if words.search(f"{name} {description}")}


def test_no_setting_that_names_a_file_is_taken_whatever_lies_there(
    service: tuple[str, int], tmp_path: pathlib.Path
) -> None:
    (tmp_path / "text.parquet").write_text("customer\nsomebody@example.org\n")
    pyarrow.parquet.write_table(pa.table({"region": ["somebody@example.org"]}), tmp_path / "keys.parquet")
    named = settings_that_name_files()
    assert named == {"partitions.public_file", "partitions.public_sorted_file"}
    for setting in named:
        key = setting.rpartition(".")[2]
        answers = set()
        for name in ("keys.parquet", "text.parquet", "missing.parquet"):
            for text in (f"{{{key}: {tmp_path / name}}}", json.dumps({key: str(tmp_path / name)})):
                response = expanded(service[0], request_of(AGGREGATE, **SETTINGS, partitions=text))
                assert not response.components.transforms
                answers.add(response.error)
        (answer,) = answers
        assert answer.startswith(f"partitions.{key}: is not taken from another program")


def test_errors_are_one_line_of_ours_and_no_traceback(service: tuple[str, int]) -> None:
    def error(**changed: object) -> str:
        return expanded(service[0], request_of(AGGREGATE, **{**SETTINGS, **changed})).error

    assert error(epsilon=-1.0).startswith("epsilon: must be ")
    assert error(partition_by="town").startswith("partition_by")
    for message in (error(epsilon=-1.0), error(partition_by="town"), error(privacy_unit=7.5)):
        assert "Traceback" not in message
        assert str(ROOT) not in message


def test_units_are_cut_for_a_runner_that_is_not_known_unless_the_request_says_otherwise(
    service: tuple[str, int],
) -> None:
    def shards(**settings: object) -> int:
        response = expanded(service[0], request_of(AGGREGATE, **SETTINGS, **settings))
        (step,) = (one for one in response.components.transforms.values() if one.unique_name.endswith("/ToShards"))
        payload = beam_runner_api_pb2.ParDoPayload.FromString(step.spec.payload)
        return int(pickler.loads(payload.do_fn.payload)[0].step._shards)

    assert shards() == shard_counts.ELSEWHERE
    assert shards(num_shards=7) == 7


def test_a_broken_payload_is_answered(service: tuple[str, int]) -> None:
    request = request_of(AGGREGATE, **SETTINGS)
    request.transform.spec.payload = b"\xff\xff"
    assert expanded(service[0], request).error == expansion.UNREADABLE
    request = request_of(AGGREGATE, **SETTINGS)
    request.components.coders["c"].spec.payload = b"\xff\xff"
    assert expanded(service[0], request).error == expansion.UNREADABLE


def test_a_port_that_is_taken_is_one_line(service: tuple[str, int], capsys: pytest.CaptureFixture[str]) -> None:
    port = service[0].rpartition(":")[2]
    assert expansion.main(["--port", port]) == 2
    assert capsys.readouterr().err.startswith(f"error: --port {port}: cannot be listened to; choose another one")


def test_the_names_are_those_of_transforms_that_take_rows() -> None:
    names = [name.rpartition(".")[2] for name in expansion.TRANSFORMS]
    assert all(issubclass(getattr(transforms, name), beam.PTransform) for name in names)
    assert "DpReadParquet" not in names
