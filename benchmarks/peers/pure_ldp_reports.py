"""pure-ldp on the same people: its clients answer, its servers count, one report at a time, as its documentation shows.

In: mechanism, epsilon, number of values, of people, of collections. Out: one line of JSON: seconds of the server for each report,
and the root mean square error of all values and collections. Runs in .venv-pure-ldp. Not covered: its Hadamard response, which
fails at epsilon 1.
"""

import json
import sys
import time

from pure_ldp.frequency_oracles.direct_encoding import DEClient, DEServer
from pure_ldp.frequency_oracles.local_hashing import LHClient, LHServer
from pure_ldp.frequency_oracles.unary_encoding import UEClient, UEServer

KINDS = {
    "d_ary": (DEClient, DEServer, {}),
    "unary": (UEClient, UEServer, {"use_oue": True}),
    "local_hashing": (LHClient, LHServer, {"use_olh": True}),
}


def main() -> None:
    """Collect, count, and print."""
    mechanism, epsilon, size, people, runs = sys.argv[1], float(sys.argv[2]), *map(int, sys.argv[3:])
    make_client, make_server, options = KINDS[mechanism]
    client = make_client(epsilon, size, **options)
    squares, seconds = 0.0, 0.0
    for _ in range(runs):
        server = make_server(epsilon, size, **options)
        reports = [client.privatise(1 + person % size) for person in range(people)]
        start = time.process_time()
        for report in reports:
            server.aggregate(report)
        seconds += time.process_time() - start
        squares += sum(
            (server.estimate(value, suppress_warnings=True) - len(range(value - 1, people, size))) ** 2
            for value in range(1, size + 1)
        )
    print(json.dumps({"seconds": seconds / people / runs, "error": (squares / size / runs) ** 0.5}))


main()
