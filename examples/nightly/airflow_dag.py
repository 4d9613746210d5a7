"""An Airflow DAG: dbt before, one private report a night, dbt after, budgets for Prometheus.

In: Airflow 2.9 or newer, or 3, on one machine with this folder (DP_NIGHTLY) and its ledger; with several workers use a ledger in
PostgreSQL, as examples/schedule/airflow_dag.py does. Holds: the start of the interval is the day, never the time at which a task
runs, so that retries and backfills give the stored release; exit codes 2 and 3 fail at once, without retries.
"""

import datetime
import os
import subprocess
from typing import Any

from airflow.exceptions import AirflowFailException
from airflow.timetables.interval import CronDataIntervalTimetable

try:
    from airflow.sdk import dag, task
except ImportError:  # Airflow 2
    from airflow.decorators import dag, task

FOLDER = os.environ.get("DP_NIGHTLY", "/srv/nightly")
FINAL = (2, 3)
"""Exit codes that no retry will change."""


@dag(
    dag_id="dp_nightly",
    schedule=CronDataIntervalTimetable("15 3 * * *", timezone="UTC"),
    start_date=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    catchup=True,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": datetime.timedelta(minutes=5)},
)
def dp_nightly() -> None:
    """The day that has ended."""

    @task
    def night(data_interval_start: Any = None) -> None:
        """All steps of a night, in the order of nightly.sh, which each may repeat."""
        code = subprocess.run([f"{FOLDER}/nightly.sh", data_interval_start.date().isoformat()], check=False).returncode
        if code in FINAL:
            raise AirflowFailException(f"dp-pipelines refused the run (exit code {code})")
        if code != 0:
            raise RuntimeError(f"the night failed (exit code {code})")

    night()


dp_nightly()
