"""Ratings of films: a program for PipelineDP's Beam transforms, with one import changed.

In: a text file: a line `7:` begins the ratings of film 7, a line `12,4,2005-09-06` is a rating of 4 stars by viewer 12; `--make`
writes one with invented ratings. Out: a text file of pairs (film, sum of stars), differentially private for viewers.

    python examples/pipeline_dp/movie_ratings.py --make ratings.txt
    python examples/pipeline_dp/movie_ratings.py ratings.txt stars
"""

import argparse
import pathlib
import random
from collections.abc import Iterator
from typing import NamedTuple

import apache_beam as beam
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from dp_pipelines.transforms import pipeline_dp
from dp_pipelines.transforms.pipeline_dp import private_beam


class Rating(NamedTuple):
    """One rating."""

    viewer: int
    film: int
    stars: int


class ParseRatings(beam.DoFn):
    """Lines of one file, in order, to ratings."""

    def __init__(self) -> None:
        self._film = -1

    def process(self, line: str) -> Iterator[Rating]:
        """One line."""
        if line.endswith(":"):
            self._film = int(line[:-1])
        else:
            viewer, stars, _ = line.split(",")
            yield Rating(int(viewer), self._film, int(stars))


def make(path: pathlib.Path, films: int = 30, viewers: int = 3000) -> None:
    """Write invented ratings: each viewer rates four films, the first ones more often."""
    chance = random.Random(20051002)  # invented data, not noise
    rated: dict[int, list[str]] = {film: [] for film in range(1, films + 1)}
    for viewer in range(viewers):
        for film in {min(films, 1 + int(chance.expovariate(0.15))) for _ in range(4)}:
            rated[film].append(f"{viewer},{chance.randint(1, 5)},2005-10-02")
    path.write_text("".join(f"{film}:\n" + "".join(line + "\n" for line in lines) for film, lines in rated.items()))


def run(ratings: str, out: str) -> str:
    """Sum the stars of each film. Returns the report."""
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=1, total_delta=1e-6)
        rows = pipeline | beam.io.ReadFromText(ratings) | beam.ParDo(ParseRatings())
        private = rows | "Private" >> private_beam.MakePrivate(
            budget_accountant=accountant, privacy_id_extractor=lambda rating: rating.viewer
        )
        report = pipeline_dp.report_generator.ExplainComputationReport()
        stars = private | "Stars" >> private_beam.Sum(
            pipeline_dp.SumParams(
                max_partitions_contributed=2,
                max_contributions_per_partition=1,
                min_value=1,
                max_value=5,
                partition_extractor=lambda rating: rating.film,
                value_extractor=lambda rating: rating.stars,
                pre_threshold=5,
            ),
            out_explain_computaton_report=report,
        )
        accountant.compute_budgets()
        stars | beam.io.WriteToText(out)
    text: str = report.text()
    return text


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Stars of films, differentially private.")
    parser.add_argument("--make", type=pathlib.Path, metavar="FILE", help="write invented ratings and end")
    parser.add_argument("files", nargs="*", help="ratings, and the output")
    options = parser.parse_args()
    if options.make:
        make(options.make)
    elif len(options.files) == 2:
        print(run(*options.files))
    else:
        parser.error("name the ratings and the output, or --make FILE")


if __name__ == "__main__":
    main()
