"""The command `describe` loads what it needs: no engine, no report, no charts.

In: the shop. Out: the modules that a process has loaded. Not covered: other commands (`tests/jobs/cli/test_loaded.py`).
"""

import pytest

from tests.jobs.cli.test_loaded import OTHERS, SLOW, loaded, of
from tests.jobs.conftest import Shop, stage


@pytest.mark.slow
def test_an_assessment_loads_no_engine_no_report_and_no_charts(shop: Shop) -> None:
    shop.without_ledger()
    job = shop.write(stages={"weekly": stage()})
    of_no_page = {"dp_pipelines.transforms", "dp_pipelines.report.report", "dp_pipelines.report.charts", *SLOW}
    page = shop.folder / "page.md"
    assert not of(loaded(shop.folder, "describe", job, "--output", page), *of_no_page - {"scipy", "flint"}, *OTHERS)
