"""DP-SGD by Opacus with ghost clipping: steps a second on the network and the batch of benchmarks/training_speed.py.

In: how many seconds to measure, and whether the batch is fixed or drawn by Opacus's own loader. Out: one line of JSON on stdout:
steps, seconds, CPU seconds. Holds: two threads, one row a user, noise and update in every step, a warm-up before the clock.
Runs in .venv-opacus; imports nothing of this project.

    python benchmarks/peers/opacus_ghost.py {batch,loader} SECONDS
"""

import json
import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any

warnings.filterwarnings("ignore")

import torch  # noqa: E402 - what it says at import is not for us
from opacus import PrivacyEngine  # noqa: E402
from torch import nn  # noqa: E402

THREADS, ROWS, BATCH = 2, 100_000, 1024
WIDTH, HIDDEN, CLASSES = 64, (256, 64), 2
WARM = 20


def main() -> None:
    """Measure and print."""
    kind, seconds = sys.argv[1], float(sys.argv[2])
    torch.set_num_threads(THREADS)
    model = nn.Sequential(
        nn.Linear(WIDTH, HIDDEN[0]),
        nn.Tanh(),
        nn.Linear(HIDDEN[0], HIDDEN[1]),
        nn.Tanh(),
        nn.Linear(HIDDEN[1], CLASSES),
    )
    data = torch.utils.data.TensorDataset(torch.randn(ROWS, WIDTH), torch.randint(0, CLASSES, (ROWS,)))
    model, optimizer, loss, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.05),
        criterion=nn.CrossEntropyLoss(reduction="mean"),
        data_loader=torch.utils.data.DataLoader(data, batch_size=BATCH),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        grad_sample_mode="ghost",
        poisson_sampling=kind == "loader",
    )
    fixed = data[:BATCH]

    def batches() -> Iterator[Any]:
        while True:
            if kind == "loader":
                yield from loader
            else:
                yield fixed

    steps, begin, cpu = 0, 0.0, 0.0
    for number, (features, labels) in enumerate(batches()):
        optimizer.zero_grad()
        loss(model(features), labels).backward()
        optimizer.step()
        if number + 1 == WARM:
            begin, cpu = time.perf_counter(), time.process_time()
        elif number + 1 > WARM:
            steps += 1
            if time.perf_counter() - begin > seconds:
                break
    print(
        json.dumps({"steps": steps, "seconds": time.perf_counter() - begin, "cpu_seconds": time.process_time() - cpu})
    )


if __name__ == "__main__":
    main()
