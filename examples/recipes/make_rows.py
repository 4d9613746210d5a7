"""Events of an app, answers to a survey and visits of an A/B test, none of which exist, for the recipes in docs/recipes.

In: nothing. Out: events/app.parquet, survey.parquet and ab_test.parquet in the present folder (or --output): 20,000 users in
twelve weeks, 6,000 answers, 20,000 people in two arms. Holds: the same rows each time; nobody's rows are among them. Not
covered: what real apps look like.

    python make_rows.py [--output DIR]
"""

import argparse
import datetime
import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

USERS, DAYS, ANSWERS, TESTED = 20_000, 84, 6_000, 20_000
FIRST_DAY = datetime.date(2026, 1, 5)
"""A Monday."""

STEPS = ("visit", "product", "basket", "order")
GOES_ON = (1.0, 0.6, 0.45, 0.5)
"""How many of a hundredth of visits that reach a step reach the next one, too."""

COUNTRIES = {"DE": 0.4, "FR": 0.3, "PL": 0.2, "SE": 0.1}
PRODUCTS = 200
OLD = np.linspace(0.2, 0.7, 3)
"""The weight of an answer rises with the age group: the young answered more often than they are many."""


def events() -> pa.Table:
    """One row for each step of each visit: users come often at first, and less with each week."""
    made = np.random.default_rng(20260105)
    first = made.integers(0, DAYS, USERS)
    eager = made.gamma(1.2, 0.5, USERS)
    weeks = np.arange(DAYS // 7)
    rate = eager[:, None] * 0.72**weeks + (weeks == 0)
    visits = made.poisson(rate)
    visits[:, 0] = np.maximum(visits[:, 0], 1)
    user, week = np.repeat(np.indices(visits.shape).reshape(2, -1), visits.ravel(), axis=1)
    within = np.where(np.r_[True, user[1:] != user[:-1]], 0, made.integers(0, 7, len(user)))
    day = first[user] + 7 * week + within
    user, day = user[day < DAYS], day[day < DAYS]
    reached = 1 + sum(np.cumprod([made.random(len(user)) < part for part in GOES_ON[1:]], axis=0))
    of, step = np.repeat(np.arange(len(user)), reached), np.concatenate([np.arange(count) for count in reached])
    product = np.minimum(made.geometric(0.03, len(user)), PRODUCTS)
    country = made.choice(list(COUNTRIES), USERS, p=list(COUNTRIES.values()))
    bought = step == len(STEPS) - 1
    seconds = made.integers(25_200, 79_200, len(user))[of] + 60 * step
    return pa.table({
        "user_id": user[of],
        "at": np.datetime64(FIRST_DAY, "s") + (86_400 * day[of] + seconds),
        "day": np.datetime64(FIRST_DAY, "D") + day[of],
        "country": country[user[of]],
        "step": np.array(STEPS)[step],
        "product": np.char.add("p", np.char.zfill(product[of].astype(str), 3)),
        "amount": pa.array(np.round(30 * made.lognormal(0, 0.6, len(of)), 2), mask=~bought),
    })  # fmt: skip


def survey() -> pa.Table:
    """One row for each person who answered, with the weight of the answer."""
    made = np.random.default_rng(20260106)
    age = made.choice(3, ANSWERS, p=(0.6, 0.3, 0.1))
    return pa.table({
        "person_id": np.arange(ANSWERS),
        "age": np.array(["18-34", "35-59", "60+"])[age],
        "weight": np.round(made.uniform(0.8, 1.2, ANSWERS) * np.array([0.5, 1.2, 3.4])[age], 3),
        "hours_online": np.round(np.clip(made.gamma(4, 1.2 - 0.35 * age), 0, 24), 1),
    })  # fmt: skip


def ab_test() -> pa.Table:
    """One row for each visit of people who see page A or B: 10% of those of A order in the end, and 13% of those of B."""
    made = np.random.default_rng(20260107)
    arm = made.integers(0, 2, TESTED)
    visits = 1 + np.minimum(made.poisson(0.8, TESTED), 7)
    user = np.repeat(np.arange(TESTED), visits)
    last = np.r_[user[1:] != user[:-1], True]
    ordered = last & (made.random(len(user)) < np.array([0.10, 0.13])[arm[user]])
    return pa.table({
        "user_id": user,
        "arm": np.array(["A", "B"])[arm[user]],
        "ordered": ordered.astype(np.int64),
        "amount": np.where(ordered, np.round(30 * made.lognormal(0, 0.6, len(user)), 2), 0.0),
    })  # fmt: skip


def main() -> None:
    """Write them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path())
    folder = parser.parse_args().output
    (folder / "events").mkdir(parents=True, exist_ok=True)
    pq.write_table(events(), folder / "events" / "app.parquet")
    pq.write_table(survey(), folder / "survey.parquet")
    pq.write_table(ab_test(), folder / "ab_test.parquet")
    print(folder / "events" / "app.parquet", folder / "survey.parquet", folder / "ab_test.parquet")


if __name__ == "__main__":
    main()
