"""The examples of schedules, run: the commands of the cron line and of the systemd service as they stand, and the Airflow DAG.

In: examples/schedule, the shop. Out: published weeks. Holds: of a command only the place of its files and the clock are
replaced. Not covered: cron and systemd as daemons. The DAG needs Airflow, in an environment of its own, since it pins what we
need newer: AIRFLOW_PYTHON names its Python; without it that test is skipped.
"""

import configparser
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable

import pytest

from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from tests.helpers.source import ROOT
from tests.jobs.conftest import Said, Shop, call, own_anchors, shop, stage  # noqa: F401 - fixtures

SCHEDULE = ROOT / "examples" / "schedule"
MONDAYS = ("2025-01-06", "2025-01-13")

Airflow = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def reports(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Shop:  # noqa: F811
    """The folder that stands at /srv/reports, with a job for two weeks and the command in its own environment."""
    shop.without_ledger()
    shop.write(
        params={"week": {"type": "date"}},
        where="CAST(paid_at AS DATE) >= {week} AND CAST(paid_at AS DATE) < {week} + 7",
        budget={"epsilon": 8.0, "delta": 1e-5, "runs": 2},
        stages={"weekly": stage()},
    )
    shop.job.rename(shop.folder / "weekly.yaml")
    programs = shop.folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "dp-pipelines").write_text(
        f"#!{sys.executable}\nimport sys\nfrom dp_pipelines.jobs.cli.main import main\nsys.exit(main())\n"
    )
    (programs / "dp-pipelines").chmod(0o755)
    monkeypatch.setenv("PATH", f"{shop.folder / 'programs'}:{os.environ['PATH']}")
    return shop


def set_clock(reports: Shop, day: str) -> None:
    """Have `date` believe that it is a day."""
    folder = reports.folder / "programs"
    folder.mkdir(exist_ok=True)
    real = shutil.which("date", path="/usr/bin:/bin")
    shown = f'''#!/bin/bash
case "$1" in
    -d) exec {real} -d "{day} $2" "${{@:3}}" ;;
    +%u) exec {real} -d {day} "$1" ;;
esac
exit 9
'''
    (folder / "date").write_text(shown)
    (folder / "date").chmod(0o755)


def cron_command(folder: pathlib.Path) -> str:
    """The command of the cron line, as cron gives it to the shell."""
    (line,) = [line for line in (SCHEDULE / "nightly.cron").read_text().splitlines() if line[:1].isdigit()]
    assert "SHELL=/bin/bash" in (SCHEDULE / "nightly.cron").read_text().splitlines()
    fields = line.split(" ", 5)
    assert fields[:5] == ["15", "3", "*", "*", "1"]
    assert "%" not in fields[5].replace(r"\%", "")
    return fields[5].replace(r"\%", "%").replace("/srv/reports", str(folder))


def service_command(folder: pathlib.Path) -> str:
    """The command of the service, as systemd gives it to the shell."""
    unit = configparser.RawConfigParser(strict=False, interpolation=None, comment_prefixes="#", delimiters="=")
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(SCHEDULE / "dp-weekly.service")
    assert unit["Service"]["WorkingDirectory"] == "/srv/reports"
    begin, command = "/bin/bash -c '", unit["Service"]["ExecStart"]
    assert command.startswith(begin)
    assert command.endswith("'")
    inner = command[len(begin) : -1]
    assert "'" not in inner
    assert "%" not in inner.replace("%%", "")
    assert "$" not in inner.replace("$$", "")
    return inner.replace("%%", "%").replace("$$", "$")


@pytest.mark.slow
@pytest.mark.parametrize("command_of", [cron_command, service_command])
def test_the_command_releases_each_week_once_however_often_it_is_started(
    reports: Shop, command_of: Callable[[pathlib.Path], str]
) -> None:
    command = command_of(reports.folder)
    found = {}
    # Two Mondays, and again: later in the first week, and on the Sunday of the second.
    for today in ("2025-01-13", "2025-01-20", "2025-01-15", "2025-01-26"):
        set_clock(reports, today)
        done = subprocess.run(
            ["/bin/bash", "-c", command], cwd=reports.folder, capture_output=True, text=True, check=False, timeout=240
        )
        assert done.returncode == 0, done.stderr
        for folder in (reports.folder / "out").iterdir():
            content = {path.name: path.read_bytes() for path in folder.iterdir()}
            assert found.setdefault(folder.name, content) == content
    assert sorted(found) == list(MONDAYS)
    ledger = Ledger.open(str(reports.folder / DEFAULT_NAME))
    assert [(run.run_id, run.round, dict(run.params)) for run in ledger.state.runs.values()] == [
        (week, number, {"week": week}) for number, week in enumerate(MONDAYS, 1)
    ]
    # A third week is one too many for this budget, and the schedulers are told not to try again.
    set_clock(reports, "2025-01-27")
    done = subprocess.run(
        ["/bin/bash", "-c", command], cwd=reports.folder, capture_output=True, check=False, timeout=240
    )
    assert done.returncode == 3
    assert not (reports.folder / "out" / "2025-01-20").exists()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: pathlib.Path) -> None:
    for unit in ("dp-weekly.service", "dp-weekly.timer"):
        shutil.copy(SCHEDULE / unit, tmp_path / unit)
        done = verified(tmp_path / unit)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (tmp_path / "dp-weekly.service").write_text((SCHEDULE / "dp-weekly.service").read_text().replace("Type=", "Typ="))
    assert "Typ" in verified(tmp_path / "dp-weekly.service").stderr


def verified(unit: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """What systemd says of a unit."""
    command = ["systemd-analyze", "verify", "--man=no", str(unit)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def airflow(reports: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Airflow:
    """The command `airflow` with a home of its own, in which the example is the only DAG."""
    python = os.environ.get("AIRFLOW_PYTHON")
    program = pathlib.Path(python).with_name("airflow") if python else None
    if program is None or not program.exists():
        pytest.skip("AIRFLOW_PYTHON names no Python of an environment with Airflow")
    home = tmp_path_factory.mktemp("airflow")
    (home / "dags").mkdir()
    shutil.copy(SCHEDULE / "airflow_dag.py", home / "dags")
    monkeypatch.setenv("AIRFLOW_HOME", str(home))
    monkeypatch.setenv("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
    monkeypatch.setenv("DP_REPORTS", str(reports.folder))
    monkeypatch.setenv("DP_LEDGER", str(reports.folder / "team.sqlite"))
    monkeypatch.setenv("PATH", f"{reports.folder / '.venv' / 'bin'}:{os.environ['PATH']}")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(program), *arguments]
        return subprocess.run(command, cwd=home, capture_output=True, text=True, check=False, timeout=120)

    done = run("db", "migrate")
    assert done.returncode == 0, done.stdout + done.stderr
    done = run("dags", "reserialize")
    assert done.returncode == 0, done.stdout + done.stderr
    return run


@pytest.mark.slow
def test_the_dag_releases_each_week_once_in_airflow(reports: Shop, airflow: Airflow, call: Callable[..., Said]) -> None:  # noqa: F811
    ledger = str(reports.folder / "team.sqlite")
    assert call("ledger", "init", reports.folder / "weekly.yaml", "--ledger", ledger).code == 0
    found = {}
    # A run by hand at the end of an interval is about the week that begins it.
    for day in ("2026-01-12", "2026-01-19", "2026-01-12"):
        done = airflow("dags", "test", "dp_weekly", f"{day}T03:15:00+00:00")
        assert done.returncode == 0, done.stdout + done.stderr
        for folder in (reports.folder / "out").iterdir():
            content = {path.name: path.read_bytes() for path in folder.iterdir()}
            assert found.setdefault(folder.name, content) == content
    assert sorted(found) == ["2026-01-05", "2026-01-12"]
    assert [run.run_id for run in Ledger.open(ledger).state.runs.values()] == ["2026-01-05", "2026-01-12"]
    # The budget is for two weeks: the task fails for good, though it has three retries.
    done = airflow("dags", "test", "dp_weekly", "2026-01-26T03:15:00+00:00")
    said = done.stdout + done.stderr
    assert "dp-pipelines refused the run (exit code 3)" in said
    assert "up_for_retry" not in said.lower()
    assert not (reports.folder / "out" / "2026-01-19").exists()
