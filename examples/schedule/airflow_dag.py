"""An Airflow DAG: one private report a week. The start of the data interval is both the run id and the parameter.

In: Airflow 2.9 or newer, or 3; a job file with `params: {week: {type: date}}` and `budget: {..., runs: 52}`; a ledger in
PostgreSQL that all workers reach (DP_LEDGER). Out: one folder a week. Holds: retries, backfills and cleared tasks use the
interval's start, never the time of day, so that they give the stored release and are not charged again; a refusal by the budget
(exit code 3) or a wrong request (2) fails at once, without retries.
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

REPORTS = os.environ.get("DP_REPORTS", "/srv/reports")
FINAL = (2, 3)
"""Exit codes that no retry will change."""


@dag(
    dag_id="dp_weekly",
    schedule=CronDataIntervalTimetable("15 3 * * 1", timezone="UTC"),
    start_date=datetime.datetime(2026, 1, 5, tzinfo=datetime.UTC),
    catchup=True,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": datetime.timedelta(minutes=5)},
)
def dp_weekly() -> None:
    """The week that has ended."""

    @task
    def release(data_interval_start: Any = None) -> None:
        """One run of the job."""
        week = data_interval_start.date().isoformat()
        command = ["dp-pipelines", "run", f"{REPORTS}/weekly.yaml", "--ledger", os.environ["DP_LEDGER"]]
        command += ["--run-id", week, "--param", f"week={week}", "--output", f"{REPORTS}/out/{week}"]
        code = subprocess.run(command, check=False).returncode
        if code in FINAL:
            raise AirflowFailException(f"dp-pipelines refused the run (exit code {code})")
        if code != 0:
            raise RuntimeError(f"dp-pipelines failed (exit code {code})")

    release()


dp_weekly()
