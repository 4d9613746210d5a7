"""Starts one worker of Beam on request of a runner: the environment PROCESS without Beam's container.

In: `--id` and `--provision_endpoint`, as runners call it. Out: a worker until its job ends. Holds: it asks the runner for
everything else. Not covered: staged packages, since dp-pipelines is installed where this runs.

Written into a script with the right Python at its head by `tests.engines.setups`. Where that is asked, the worker stops at a step
(`tests.engines.points`), and a process beside it writes down of what it died (`tests.engines.deaths`).
"""

import argparse
import os

if "DP_TEST_POINTS" in os.environ:
    from tests.engines import deaths

    deaths.watched(os.environ["DP_TEST_POINTS"])

import grpc
from apache_beam.portability.api import beam_provision_api_pb2 as provision
from apache_beam.portability.api import beam_provision_api_pb2_grpc
from apache_beam.runners.worker import sdk_worker_main
from google.protobuf import json_format, text_format

parser = argparse.ArgumentParser()
parser.add_argument("--id", required=True)
parser.add_argument("--provision_endpoint", required=True)
given, _ = parser.parse_known_args()
headers = [("worker_id", given.id)]
channel = grpc.insecure_channel(given.provision_endpoint)
service = beam_provision_api_pb2_grpc.ProvisionServiceStub(channel)
info = service.GetProvisionInfo(provision.GetProvisionInfoRequest(), metadata=headers).info
os.environ["WORKER_ID"] = given.id
os.environ["PIPELINE_OPTIONS"] = json_format.MessageToJson(info.pipeline_options)
os.environ["RUNNER_CAPABILITIES"] = " ".join(info.runner_capabilities)
os.environ["CONTROL_API_SERVICE_DESCRIPTOR"] = text_format.MessageToString(info.control_endpoint)
os.environ["LOGGING_API_SERVICE_DESCRIPTOR"] = text_format.MessageToString(info.logging_endpoint)
if "DP_TEST_POINTS" in os.environ:
    from tests.engines import points

    points.plant(os.environ["DP_TEST_POINTS"])
sdk_worker_main.main([])
