"""Visits of a restaurant by day: a program for PipelineDP's engine without Beam, with one import changed.

In: a CSV file with VisitorId, Time entered, Time spent (minutes), Money spent (euros), Day; `--make` writes one with invented
visits. Out: for each day the visitors, the visits and the money spent, differentially private for visitors, on stdout.

    python examples/pipeline_dp/restaurant_visits.py --make visits.csv
    python examples/pipeline_dp/restaurant_visits.py visits.csv [--public] [--compare-released-counts]
"""

import argparse
import csv
import pathlib
import random
from typing import Any

from dp_pipelines.transforms import pipeline_dp

HEADER = ["VisitorId", "Time entered", "Time spent (minutes)", "Money spent (euros)", "Day"]


def make(path: pathlib.Path, visitors: int = 2000) -> None:
    """Write invented visits of a week: each visitor comes on one to three days."""
    chance = random.Random(20210301)  # invented data, not noise
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        for visitor in range(visitors):
            for day in chance.sample(range(1, 8), chance.randint(1, 3)):
                minutes = chance.randint(5, 60)
                writer.writerow([visitor, f"{chance.randint(9, 20)}:{minutes:02}", minutes, chance.randint(5, 40), day])


def run(path: str, *, public: bool = False, compare: bool = False) -> tuple[list[Any], str]:
    """Results by day, and the report."""
    with open(path, newline="") as file:
        visits = list(csv.DictReader(file))
    accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=1, total_delta=1e-6)
    engine = pipeline_dp.DPEngine(accountant, pipeline_dp.LocalBackend())
    params = pipeline_dp.AggregateParams(
        noise_kind=pipeline_dp.NoiseKind.LAPLACE,
        metrics=[pipeline_dp.Metrics.PRIVACY_ID_COUNT, pipeline_dp.Metrics.COUNT, pipeline_dp.Metrics.SUM],
        max_partitions_contributed=3,
        max_contributions_per_partition=2,
        min_value=0,
        max_value=60,
        post_aggregation_thresholding=compare,
    )
    extractors = pipeline_dp.DataExtractors(
        partition_extractor=lambda visit: int(visit["Day"]),
        privacy_id_extractor=lambda visit: visit["VisitorId"],
        value_extractor=lambda visit: float(visit["Money spent (euros)"]),
    )
    report = pipeline_dp.report_generator.ExplainComputationReport()
    days = list(range(1, 8)) if public else None
    result = engine.aggregate(visits, params, extractors, public_partitions=days, out_explain_computation_report=report)
    accountant.compute_budgets()
    return list(result), report.text()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Visits of a restaurant by day, differentially private.")
    parser.add_argument("--make", action="store_true", help="write invented visits into the file and end")
    parser.add_argument("--public", action="store_true", help="the days are public: all seven are released")
    parser.add_argument("--compare-released-counts", action="store_true", help="select days by the released visitors")
    parser.add_argument("file", type=pathlib.Path)
    options = parser.parse_args()
    if options.make:
        make(options.file)
        return
    results, report = run(str(options.file), public=options.public, compare=options.compare_released_counts)
    print(report, *results, sep="\n")


if __name__ == "__main__":
    main()
