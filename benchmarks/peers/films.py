"""Three programs for PipelineDP on ratings of films, as its examples are: two on Beam, one without; under either import.

In: the library's module, the program, a text file of ratings, the output. Out: the results as text. With `none` as the library
the program only reads and parses. `make` writes invented ratings.

    python films.py pipeline_dp beam-sum ratings.txt out
"""

import argparse
import importlib
import pathlib
import random
from typing import Any, NamedTuple


class View(NamedTuple):
    """One rating."""

    viewer: int
    film: int
    stars: int


def view(line: str, film: int) -> View:
    """A line `viewer,stars,date`."""
    cells = line.split(",")
    return View(int(cells[0]), film, int(cells[1]))


def views(path: str) -> list[View]:
    """All ratings of a file, for programs without Beam."""
    found, film = [], -1
    with open(path) as lines:
        for line in lines:
            line = line.strip()
            if line[-1] == ":":
                film = int(line[:-1])
            else:
                found.append(view(line, film))
    return found


def make(path: str, rows: int, films: int = 300) -> None:
    """Write ratings: viewers have some 16 each, and films are the rarer the higher their number."""
    chance = random.Random(20060101)  # invented data, not noise
    rated: list[list[str]] = [[] for _ in range(films)]
    for _ in range(rows):
        film = int(films * chance.random() ** 2)
        rated[film].append(f"{chance.randrange(rows // 16)},{chance.randint(1, 5)},2006-01-01\n")
    with open(path, "w") as out:
        for number, lines in enumerate(rated, 1):
            out.write(f"{number}:\n")
            out.writelines(lines)


def parsed(pipeline: Any, path: str) -> Any:
    """Ratings in a pipeline."""
    import apache_beam as beam

    class Parse(beam.DoFn):
        def __init__(self) -> None:
            self._film = -1

        def process(self, line: str) -> Any:
            if line[-1] == ":":
                self._film = int(line[:-1])
                return
            yield view(line, self._film)

    return pipeline | beam.io.ReadFromText(path) | beam.ParDo(Parse())


BOUNDS = {"max_partitions_contributed": 2, "max_contributions_per_partition": 1, "min_value": 1, "max_value": 5}


def extractors(library: Any) -> Any:
    """What an engine reads of a rating."""
    return library.DataExtractors(
        partition_extractor=lambda row: row.film,
        privacy_id_extractor=lambda row: row.viewer,
        value_extractor=lambda row: row.stars,
    )


def beam_sum(library: Any, rows: Any, accountant: Any) -> Any:
    """Stars of each film, by a private collection."""
    private_beam = importlib.import_module(library.__name__ + ".private_beam")
    params = library.SumParams(
        **BOUNDS, partition_extractor=lambda row: row.film, value_extractor=lambda row: row.stars, pre_threshold=5
    )
    private = rows | private_beam.MakePrivate(budget_accountant=accountant, privacy_id_extractor=lambda row: row.viewer)
    return private | "Stars" >> private_beam.Sum(params)


def beam_metrics(library: Any, rows: Any, accountant: Any) -> Any:
    """Five metrics of each film, by the engine."""
    M = library.Metrics
    metrics = [M.COUNT, M.SUM, M.MEAN, M.VARIANCE, M.PRIVACY_ID_COUNT]
    params = library.AggregateParams(metrics=metrics, noise_kind=library.NoiseKind.LAPLACE, **BOUNDS)
    return library.DPEngine(accountant, library.BeamBackend()).aggregate(rows, params, extractors(library))


def local(library: Any, rows: list[View], accountant: Any) -> Any:
    """Counts, a sum and percentiles of each film, without Beam."""
    M = library.Metrics
    params = library.AggregateParams(
        metrics=[M.COUNT, M.SUM, M.PRIVACY_ID_COUNT, M.PERCENTILE(50), M.PERCENTILE(90), M.PERCENTILE(99)],
        noise_kind=library.NoiseKind.GAUSSIAN,
        partition_selection_strategy=library.PartitionSelectionStrategy.GAUSSIAN_THRESHOLDING,
        **BOUNDS,
    )
    return library.DPEngine(accountant, library.LocalBackend()).aggregate(rows, params, extractors(library))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Programs for PipelineDP on ratings of films.")
    parser.add_argument(
        "library", help="pipeline_dp or dp_pipelines.transforms.pipeline_dp, or none: only read and parse"
    )
    parser.add_argument("program", choices=["beam-sum", "beam-metrics", "local", "make"])
    parser.add_argument("ratings")
    parser.add_argument("out", help="where the results go; for make, the number of rows")
    options = parser.parse_args()
    if options.program == "make":
        make(options.ratings, int(options.out))
        return
    library = None if options.library == "none" else importlib.import_module(options.library)
    accountant = library and library.NaiveBudgetAccountant(total_epsilon=1, total_delta=1e-6)
    if options.program == "local":
        rows = views(options.ratings)
        found = local(library, rows, accountant) if library else []
        if accountant:
            accountant.compute_budgets()
        pathlib.Path(options.out).write_text("\n".join(sorted(map(str, found))))
        return
    import apache_beam as beam
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        rows = parsed(pipeline, options.ratings)
        if not library:
            rows | beam.FlatMap(lambda row: ())
            return
        found = (beam_sum if options.program == "beam-sum" else beam_metrics)(library, rows, accountant)
        accountant.compute_budgets()
        found | beam.io.WriteToText(options.out)


if __name__ == "__main__":
    main()
