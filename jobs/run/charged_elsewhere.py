"""Which files a job is charged for, and whether this user has charged them to another account before.

In: a checked request. Out: patterns with their files; warnings. Holds: nothing is recorded, no ledger is opened and no row is
read. Not covered: recording the files, which a run does when it opens its account (`ledger_account`).
"""

from dp_pipelines.jobs.request.request import Request
from dp_pipelines.ledger import default_places, sources
from dp_pipelines.ledger.default_places import AccountPlace


def charged_files(request: Request) -> list[tuple[str, tuple[str, ...]]]:
    """Return the pattern of each table that a job reads, with its files.

    Args:
        request: of the job.
    """
    folder, read = str(request.file.path.parent), request.sources
    patterns = [source.pattern for source in request.file.job.sources.values()]
    named = ((sources.absolute(pattern, folder), source) for pattern, source in zip(patterns, read, strict=True))
    return [(sources.covering(pattern, source.files), source.files) for pattern, source in named]


def charged_elsewhere(request: Request, ledger: str) -> list[str]:
    """Return a warning for each other account that this user has charged for the files of a job; none once a run has said it.

    Args:
        request: of the job.
        ledger: the name of the ledger that the job would be charged to; empty if there is none yet.
    """
    place = AccountPlace(account=request.file.job.dataset, ledger=ledger, shown="")
    read = charged_files(request)
    found = [text for pattern, files in read for text in default_places.warnings_of(place, pattern, files, "--ledger")]
    return list(dict.fromkeys(found))
