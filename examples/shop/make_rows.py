"""Purchases of a shop that does not exist, for the job beside this file.

In: nothing. Out: data/shop.parquet in the present folder (or --output): 30,000 customers, four cities, twelve weeks. Holds: the
same rows each time; nobody's purchases are among them. Not covered: what real shops look like.

    python make_rows.py [--output DIR]
"""

import argparse
import datetime
import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

CUSTOMERS, WEEKS = 30_000, 12
FIRST_DAY = datetime.date(2026, 1, 5)
"""A Monday."""

CITIES = {"Aarhus": 0.34, "Bergen": 0.27, "Gdansk": 0.22, "Turku": 0.17}
"""The part of all customers."""

TRENDS = {"Bergen": np.linspace(1.3, 0.8, WEEKS), "Turku": np.linspace(0.5, 1.9, WEEKS)}
"""How much more or less is bought in a week; elsewhere as much in each."""


def rows() -> pa.Table:
    """About 250,000 purchases: some customers come often, most now and then."""
    made = np.random.default_rng(20260105)
    home = made.choice(len(CITIES), CUSTOMERS, p=list(CITIES.values()))
    busy = np.array([TRENDS.get(name, np.ones(WEEKS)) for name in CITIES])
    visits = made.poisson(made.gamma(1.5, 0.18, CUSTOMERS)[:, None] * busy[home])
    customer, week = np.repeat(np.indices(visits.shape).reshape(2, -1), visits.ravel(), axis=1)
    customer, week = np.repeat([customer, week], made.integers(1, 5, len(week)), axis=1)
    day = week * 7 + made.integers(0, 7, len(week))
    return pa.table({
        "customer_id": customer,
        "sold_at": np.datetime64(FIRST_DAY, "s") + (day * 86_400 + made.integers(28_800, 72_000, len(week))),
        "week": np.datetime64(FIRST_DAY, "D") + week * 7,
        "city": np.array(list(CITIES))[home[customer]],
        "product_id": made.integers(0, 400, len(week)),
        "price": np.round(22 * made.lognormal(0, 0.5, len(week)), 2),
    })  # fmt: skip


def main() -> None:
    """Write them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("data"))
    folder = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows(), folder / "shop.parquet")
    print(folder / "shop.parquet")


if __name__ == "__main__":
    main()
