"""Sums of whole numbers by Flower's SecAgg+: twenty clients, of which some drop out.

In: a file with a row of whole numbers for each client. Out: a file with their sum, and what each client sent and computed.
Holds: workflow and clients are Flower's own; every message goes through Flower's wire format, in this process. Flower takes
floats, so numbers lie within +-2**21, on whole numbers of which its rounding changes nothing. Not covered: Flower's network, and
its masks, see docs/secure_sums.md.
Run by .venv-secure-sums: python secagg.py numbers.npz sums.npz DROPPED...
"""

import json
import logging
import sys
import time
from collections.abc import Iterable

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key, Stage
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.compat.common import recorddict_compat as compat
from flwr.proto.recorddict_pb2 import RecordDict as Proto
from flwr.server import LegacyContext
from flwr.server.client_manager import SimpleClientManager
from flwr.server.compat.grid_client_proxy import GridClientProxy
from flwr.server.strategy import FedAvg
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD
from flwr.server.workflow.constant import Key as WorkflowKey
from flwr.supercore.task_identity import TaskIdentity

LARGEST = 2**21
"""Numbers lie within plus and minus this: what Flower sends are 2**22 levels and the end of the range."""

MODULUS = 2**32

TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 0, 1, 0  # what a SuperLink would say of this process
logging.getLogger("flwr").setLevel(logging.ERROR)


class Client:
    """One client: Flower's modifier over numbers that it has, and what it sent and computed."""

    def __init__(self, number: int, numbers: np.ndarray, drops: bool) -> None:
        self.number, self.numbers, self.drops = number, numbers, drops
        self.context = Context(run_id=1, node_id=number, node_config={}, state=RecordDict(), run_config={})
        self.sent, self.seconds = 0, 0.0

    def answer(self, message: Message) -> Message | None:
        """The reply; None from a client that is gone once it has shared its keys."""
        stage = message.content.config_records[RECORD_KEY_CONFIGS][Key.STAGE]
        if self.drops and stage in (Stage.COLLECT_MASKED_VECTORS, Stage.UNMASK):
            return None
        begin = time.process_time()
        reply = secaggplus_mod(message, self.context, self._fit)
        self.seconds += time.process_time() - begin
        wire = recorddict_to_proto(reply.content).SerializeToString()
        self.sent += len(wire)
        reply.content = recorddict_from_proto(Proto.FromString(wire))
        return reply

    def _fit(self, message: Message, context: Context) -> Message:
        given = ndarrays_to_parameters([self.numbers.astype(np.float64)])
        # One example, and max_weight 1: equal weights, since how many examples a client has is private.
        told = FitRes(Status(Code.OK, ""), parameters=given, num_examples=1, metrics={})
        return Message(compat.fitres_to_recorddict(told, keep_input=False), reply_to=message)


class HereGrid:
    """The network of the workflow: messages to clients of this process, through their wire format."""

    def __init__(self, clients: Iterable[Client]) -> None:
        self.clients = {client.number: client for client in clients}

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """The replies of those who are there."""
        found = []
        for message in messages:
            client = self.clients[message.metadata.dst_node_id]
            wire = recorddict_to_proto(message.content).SerializeToString()
            message.content = recorddict_from_proto(Proto.FromString(wire))
            reply = client.answer(message)
            if reply is not None:
                found.append(reply)
        return found


class Opened(FedAvg):
    """A strategy that keeps the average that the workflow opened."""

    average: np.ndarray | None = None

    def aggregate_fit(self, server_round, results, failures):  # noqa: ANN001, ANN201
        """Keep what is the same in all results."""
        from flwr.common import parameters_to_ndarrays

        (self.average,) = parameters_to_ndarrays(results[0][1].parameters)
        self.number = len(results)
        return None, {}


def opened_sum(numbers: np.ndarray, dropped: Iterable[int] = ()) -> tuple[np.ndarray, dict[str, float]]:
    """The sum of the numbers of all clients that stayed, and what it cost a client.

    Args:
        numbers: a row of whole numbers for each client, within +-`LARGEST`.
        dropped: the clients that drop out after they shared their keys.
    """
    assert np.abs(numbers).max() <= LARGEST
    gone = set(dropped)
    clients = [Client(i + 1, row, i in gone) for i, row in enumerate(numbers)]
    grid, manager, strategy = (
        HereGrid(clients),
        SimpleClientManager(),
        Opened(min_fit_clients=2, min_available_clients=2),
    )
    for client in clients:
        manager.register(GridClientProxy(node_id=client.number, grid=grid, run_id=1))
    context = LegacyContext(
        context=Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config={}),
        strategy=strategy, client_manager=manager,
    )  # fmt: skip
    from flwr.app import ConfigRecord

    context.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({WorkflowKey.CURRENT_ROUND: 1})
    nothing = ndarrays_to_parameters([np.zeros(0)])
    context.state.array_records[MAIN_PARAMS_RECORD] = compat.parameters_to_arrayrecord(nothing, True)
    workflow = SecAggPlusWorkflow(
        num_shares=1.0, reconstruction_threshold=0.5, max_weight=1, clipping_range=float(LARGEST),
        quantization_range=2 * LARGEST, modulus_range=MODULUS,
    )  # fmt: skip
    begin = time.process_time()
    workflow(grid, context)
    stayed = [client for client in clients if client.number - 1 not in gone]
    assert strategy.average is not None, "too few clients stayed"
    sums = np.rint(strategy.average * len(stayed)).astype(np.int64)
    spent = time.process_time() - begin - sum(client.seconds for client in clients)
    of_clients = {
        "bytes": float(np.mean([client.sent for client in stayed])),
        "seconds": float(np.mean([client.seconds for client in stayed])),
        "server_seconds": spent,
    }
    return sums, of_clients


if __name__ == "__main__":
    given = np.load(sys.argv[1])["numbers"]
    total, cost = opened_sum(given, [int(each) for each in sys.argv[3:]])
    np.savez(sys.argv[2], sums=total)
    print(json.dumps(cost))
