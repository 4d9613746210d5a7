"""Additive work on Shamir's shares by MPyC, three parties on this machine: a sum of numbers, or second moments of rows.

In: `sum N` or `moments 0`, and MPyC's options (-M3). Out: JSON of party 0 on the last line. Holds: numbers lie in the field of
2**61 - 1, as in `extensions.two_organisations.secure_sum`. Run by .venv-secure-sums.
"""

import json
import sys
import time

import numpy as np
import secure_sum_ways as ways
from mpyc.runtime import mpc

PRIME, PORTION, STEPS = 2**61 - 1, 2**16, 2**20


async def main() -> None:
    """One party."""
    field = mpc.SecFld(PRIME)
    what, n = sys.argv[1], int(sys.argv[2])
    mine = ways.numbers(n) if what == "sum" else np.rint(ways.rows() * STEPS).astype(np.int64)
    async with mpc:
        begin, clock = time.process_time(), time.perf_counter()
        opened = []
        for part in range(0, len(mine), PORTION) if what == "sum" else [0]:
            held = field.array(mine[part : part + PORTION].astype(object) % PRIME)
            shared = mpc.input(held, senders=[0, 1] if what == "sum" else [0])
            result = shared[0] + shared[1] if what == "sum" else shared[0].T @ shared[0]
            opened.append(await mpc.output(result))
        cost = {"seconds": time.process_time() - begin, "elapsed": time.perf_counter() - clock}
        cost["bytes"] = sum(peer.protocol.nbytes_sent for peer in mpc.parties if peer.pid != mpc.pid)
    whole = np.concatenate(
        [np.array([[int(v) for v in row] for row in np.atleast_2d(each)], object) for each in opened], axis=-1
    )
    whole = np.where(whole > PRIME // 2, whole - PRIME, whole)
    if what == "sum":
        cost["error"] = int(np.abs(whole[0] - 2 * mine).max())
    else:
        cost["moments"] = (whole.astype(float) / STEPS**2).tolist()
    print(json.dumps(cost))


mpc.run(main())
