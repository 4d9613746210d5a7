"""What a sum costs a client, and a regression over encrypted rows: Flower, phe and tenseal; run by .venv-secure-sums.

In: arguments: the way and how many numbers. Out: JSON on the last line. Holds: what was measured on fewer numbers says so
(`measured`). Not covered: networks, of which no time is in these figures.
"""

import json
import pathlib
import sys
import time

import numpy as np

PAILLIER_BITS, PAILLIER_MEASURED = 2048, 200
CLIENTS = 20
ROWS, FEATURES = 4096, 4


def numbers(n: int) -> np.ndarray:
    """Of one client."""
    return np.random.default_rng(7).integers(-(2**20), 2**20, n)


def secagg(n: int) -> dict[str, float]:
    """Flower's SecAgg+ with twenty clients, three of which drop out."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "secure_sums"))
    import secagg as flower

    every = np.stack([numbers(n) + client for client in range(CLIENTS)])
    sums, cost = flower.opened_sum(every, (3, 7, 19))
    stayed = np.delete(np.arange(CLIENTS), (3, 7, 19))
    return {**cost, "error": float(np.abs(sums - every[stayed].sum(axis=0)).max())}


def paillier(n: int) -> dict[str, float]:
    """Paillier's encryption by phe; one number in each ciphertext."""
    from phe import paillier as library

    public, private = library.generate_paillier_keypair(n_length=PAILLIER_BITS)
    measured = min(n, PAILLIER_MEASURED)
    mine = [int(value) for value in numbers(measured)]
    begin = time.process_time()
    sent = [public.encrypt(value) for value in mine]
    seconds = (time.process_time() - begin) * n / measured
    begin = time.process_time()
    sums = [one + other for one, other in zip(sent, sent, strict=True)]
    opened = [private.decrypt(each) for each in sums]
    server = (time.process_time() - begin) * n / measured
    error = max(abs(value - 2 * own) for value, own in zip(opened, mine, strict=True))
    bytes_of_one = (sent[0].ciphertext().bit_length() + 7) // 8
    return {
        "bytes": bytes_of_one * n,
        "seconds": seconds,
        "server_seconds": server,
        "measured": measured,
        "error": error,
    }


def context():  # noqa: ANN201
    """CKKS as tenseal's tutorials set it: 128 bits of security, two multiplications."""
    import tenseal

    made = tenseal.context(tenseal.SCHEME_TYPE.CKKS, 8192, coeff_mod_bit_sizes=[60, 40, 40, 60])
    made.global_scale = 2**40
    made.generate_galois_keys()
    return made


def ckks(n: int) -> dict[str, float]:
    """CKKS by tenseal; 4,096 numbers in each ciphertext."""
    import tenseal

    own = context()
    mine = numbers(n).astype(float)
    parts = [mine[begin : begin + 4096].tolist() for begin in range(0, n, 4096)]
    begin = time.process_time()
    sent = [tenseal.ckks_vector(own, part) for part in parts]
    wire = [each.serialize() for each in sent]
    seconds = time.process_time() - begin
    begin = time.process_time()
    received = [tenseal.ckks_vector_from(own, each) for each in wire]
    opened = np.concatenate([(one + one).decrypt() for one in received])
    server = time.process_time() - begin
    return {
        "bytes": sum(len(each) for each in wire), "seconds": seconds, "server_seconds": server,
        "error": float(np.abs(opened - 2 * mine).max()),
    }  # fmt: skip


def rows() -> np.ndarray:
    """A column of ones, features and what is predicted, within [-1, 1]."""
    made = np.random.default_rng(11)
    features = made.uniform(-1, 1, (ROWS, FEATURES))
    target = features @ np.linspace(-0.3, 0.3, FEATURES) + 0.1 + made.normal(0, 0.1, ROWS)
    return np.column_stack([np.ones(ROWS), features, np.clip(target, -1, 1)])


def regression(n: int) -> dict[str, float]:
    """Second moments of encrypted columns: the server multiplies ciphertexts, the key's owner solves."""
    import tenseal

    own, table = context(), rows()
    begin = time.process_time()
    wire = [tenseal.ckks_vector(own, column.tolist()).serialize() for column in table.T]
    seconds = time.process_time() - begin
    begin = time.process_time()
    columns = [tenseal.ckks_vector_from(own, each) for each in wire]
    width, moments = len(columns), np.zeros((len(columns), len(columns)))
    products = {(i, j): columns[i].dot(columns[j]) for i in range(width) for j in range(i, width)}
    server = time.process_time() - begin
    for (i, j), product in products.items():
        moments[i, j] = moments[j, i] = product.decrypt()[0]
    keys = len(own.serialize(save_secret_key=False))
    return {
        "bytes": sum(len(each) for each in wire), "key_bytes": keys, "seconds": seconds, "server_seconds": server,
        "moments": moments.tolist(),
    }  # fmt: skip


if __name__ == "__main__":
    print(
        json.dumps(
            {"secagg": secagg, "paillier": paillier, "ckks": ckks, "regression": regression}[sys.argv[1]](
                int(sys.argv[2])
            )
        )
    )
