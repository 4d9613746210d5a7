"""A report of two organisations: what is added up, what it costs, what a party shows, what happens where one is missing."""

import io
import json
import math
import pathlib
import sqlite3
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml

from dp_pipelines.extensions.two_organisations.party_run import PartyProduction
from dp_pipelines.jobs.cli.main import main
from dp_pipelines.jobs.request import request
from dp_pipelines.jobs.run import ledger_account, pipelines
from dp_pipelines.jobs.run import run as running
from dp_pipelines.jobs.runners import local_engine
from dp_pipelines.jobs.spec import job_file
from dp_pipelines.jobs.terminal.progress import Progress
from dp_pipelines.planning.plan import Plan
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.release import gate
from dp_pipelines.steps import party_tables
from dp_pipelines.steps.draw_release import DrawPartyTable
from dp_pipelines.training.kept_draws import InMemory
from tests.extensions.two_organisations.worlds import NORTH, PARTIES, SOUTH, World, free_ports, job
from tests.helpers.quiet import NoNoise

SALT = 77


def planned(path: pathlib.Path) -> tuple[request.Request, Plan]:
    file = job_file.load(str(path))
    asked = request.check(file, [])
    return asked, running.plan_of(file, asked.stages)


def table_of(path: pathlib.Path, stage: StagePlan, folder: pathlib.Path) -> np.ndarray:
    """The numbers of the party at this path, by the product's own pipeline."""
    asked, _ = planned(path)
    folder.mkdir()
    with open("/dev/null", "w") as nowhere, Progress(nowhere) as progress:
        engine = local_engine.configured([])
        files = pipelines.run_pipeline(asked, {"sales": stage}, folder, engine, progress, salt=SALT)
    return party_tables.numbers_of(pq.read_table(files["sales.parquet"]), stage)


@pytest.fixture
def no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "Sampler", NoNoise)


@pytest.mark.usefixtures("no_noise")
def test_for_disjoint_people_the_sums_less_the_draws_are_the_integers_of_one_run_over_all_rows(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = []
    real = DrawPartyTable.totals

    def kept(self: DrawPartyTable, element: Any) -> Any:
        totals = real(self, element)
        exact.append({i: (totals.high[i] * 2**32 + totals.low[i]).sum() for i in range(len(totals.high))})
        return totals

    monkeypatch.setattr(DrawPartyTable, "totals", kept)
    world = World.made(tmp_path / "world", job(free_ports(3)))
    _, plan = planned(world.path("north"))
    stage, found, whole = plan.stages["sales"], {}, {}
    for name in ("north", "south", "joint"):
        exact.clear()
        found[name] = table_of(world.path(name), stage, tmp_path / name)
        whole[name] = {i: sum(of[i] for of in exact) for i in exact[0]}
    for place, total in whole["joint"].items():  # before the lattice of the release: exactly
        assert whole["north"][place] + whole["south"][place] == total
    # On it, each party rounds its own number, where one run rounds their sum: at most one step in thousands of the noise.
    apart = np.abs(found["north"] + found["south"] - found["joint"])
    assert apart.max() <= 1
    assert [float(n.law.scale) for n in stage.noises if n is not None and n.law.scale < 1000] == []
    assert np.abs(found["north"]).max() > 1000


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("people", ["any", "disjoint"])
def test_one_person_moves_the_tables_of_all_parties_by_at_most_what_is_charged(
    tmp_path: pathlib.Path, people: str
) -> None:
    said = job(free_ports(3))
    said["parties"]["people"] = people
    person = pa.table({"customer": [9999] * 40, "region": (["a", "b", "c"] * 14)[:40], "amount": [1e9, 100.0] * 20})
    with_person = {"north": pa.concat_tables([NORTH, person]), "south": SOUTH}
    if people == "any":
        with_person["south"] = pa.concat_tables([SOUTH, person])
    before = World.made(tmp_path / "before", said)
    after = World.made(tmp_path / "after", said, with_person["north"], with_person["south"])
    _, plan = planned(before.path("north"))
    stage = plan.stages["sales"]
    moved = [
        table_of(after.path(name), stage, tmp_path / f"{name}1")
        - table_of(before.path(name), stage, tmp_path / f"{name}0")
        for name in ("north", "south")
    ]
    largest = 0.0
    for number, statistic in enumerate(party_tables.released_statistics(stage)):
        (record,) = [record for record in plan.mechanisms if record.name == statistic.name]
        both = np.abs(np.concatenate([table[number] for table in moved]))
        assert np.count_nonzero(both) <= (record.l0 or 0)
        if record.kind == "gaussian":
            assert (both.astype(object) ** 2).sum() <= (record.l2_squared or 0)
            largest = max(largest, float((both.astype(float) ** 2).sum() / (record.l2_squared or 1)))
        else:
            assert both.max() <= (record.linf or 0)
            assert both.sum() <= (record.l1 or 0)
            largest = max(largest, float(both.sum() / (record.l1 or 1)))
    assert largest > 0.95  # the record is no larger than it must be


def test_without_the_promise_the_plan_pays_for_a_person_at_both(tmp_path: pathlib.Path) -> None:
    promised, ports = job(free_ports(3)), free_ports(3)
    unpromised = job(ports)
    unpromised["parties"] = {**unpromised["parties"], "people": "any"}
    _, one = planned(World.made(tmp_path / "one", promised).path("north"))
    _, both = planned(World.made(tmp_path / "both", unpromised).path("north"))
    _, joint = planned(tmp_path / "one" / "joint" / "job.yaml")
    count = [{r.name: r for r in plan.mechanisms}["rows"].l0 for plan in (joint, one, both)]
    assert count == [2, 2, 4]
    assert both.accounted["epsilon"] <= 1
    # The price: one draw of noise for each organisation that has rows, whose variances add up.
    prices = [
        {s.name: n.stddev for s, n in zip(p.stages["sales"].statistics, p.stages["sales"].noises, strict=True) if n}
        for p in (joint, one)
    ]
    for name, stddev in prices[0].items():
        assert prices[1][name] == pytest.approx(math.sqrt(2) * stddev, rel=0.01)
    assert one.to_json()["parties"]["variance_times"] == 2


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World.made(tmp_path_factory.mktemp("world"), job(free_ports(3)))


@pytest.fixture(scope="module")
def done(world: World) -> dict[str, tuple[int, str, str]]:
    return world.together("--run-id", "first")


def test_three_processes_publish_one_table_which_is_near_that_of_all_rows(
    world: World, done: dict[str, tuple[int, str, str]]
) -> None:
    assert [code for code, _, _ in done.values()] == [0, 0, 0], done
    tables = [pq.read_table(world.folder / party / "out" / "sales.parquet") for party in PARTIES]
    assert all(table.equals(tables[0]) for table in tables)
    published = {row["region"]: row for row in tables[0].to_pylist()}
    assert set(published) == {"a", "b", "c", "nobody's"}
    assert abs(published["nobody's"]["orders"]) <= 12 * published["nobody's"]["orders_stddev"]
    # 500 people with two regions of two rows each, at most: the sum over regions lies far from either organisation's own.
    orders = sum(row["orders"] for row in published.values())
    stddev = math.hypot(*(row["orders_stddev"] for row in published.values()))
    joint = pa.concat_tables([NORTH, SOUTH]).group_by(["customer", "region"]).aggregate([([], "count_all")])
    counted = joint.column("count_all").to_numpy().clip(max=2)
    assert counted.sum() * 0.6 - 12 * stddev < orders < counted.sum() + 12 * stddev


def test_a_total_over_all_rows_of_all_parties_is_released(tmp_path: pathlib.Path) -> None:
    """It has no key columns, so its public list has no entries."""
    said = job(free_ports(3), budget={"epsilon": 8.0, "delta": 1e-6})
    total = {"kind": "aggregate", "partition_by": [], "bounds": {"max_contributions_per_partition": 4}}
    said["stages"]["all"] = {**total, "metrics": {"orders": {"kind": "count"}}}
    world = World.made(tmp_path, said)
    ended = world.together("--run-id", "r")
    assert [code for code, _, _ in ended.values()] == [0, 0, 0], ended
    (row,) = pq.read_table(tmp_path / "south" / "out" / "all.parquet").to_pylist()
    assert abs(row["orders"] - len(NORTH) - len(SOUTH)) <= 12 * row["orders_stddev"] < len(SOUTH) / 2


def test_plan_manifest_and_report_say_what_is_promised_who_computes_and_what_it_costs(
    world: World, done: dict[str, tuple[int, str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", str(world.path("north"))]) == 0
    manifest = json.loads((world.folder / "south" / "out" / "manifest.json").read_text())
    page = (world.folder / "notary" / "out" / "report.html").read_text()
    for said in (capsys.readouterr().out, json.dumps(manifest), page, done["north"][1]):
        for words in (
            "promised, and verified by nobody",
            "any two of the parties together",
            "notary only computes",
            "2 times",
        ):
            assert words in said


def test_what_a_party_prints_and_leaves_says_nothing_of_its_rows(
    world: World, done: dict[str, tuple[int, str, str]]
) -> None:
    """The organisations and the one without rows say the same, but for their folders."""
    said = {p: (out + err).replace(f"/{p}/", "/") for p, (_, out, err) in done.items()}
    assert said["north"] == said["south"] == said["notary"]
    for party in PARTIES:
        left = sorted(path.name for path in (world.folder / party).iterdir() if not path.name.startswith("dp-ledger"))
        assert left == ["data", "job.yaml", "out"]


def test_a_party_that_runs_again_gets_its_release_without_the_others(world: World, done: object) -> None:
    process = world.start("north", "--run-id", "first")
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "already published" in said


def test_parties_that_do_not_run_the_same_are_refused_before_anything_is_charged(tmp_path: pathlib.Path) -> None:
    world = World.made(tmp_path, job(free_ports(3)))
    text = world.path("south").read_text()
    world.path("south").write_text(text.replace("epsilon: 1.0", "epsilon: 2.0"))
    for party, (code, _, told) in world.together("--run-id", "r").items():
        assert code == 2, told
        assert "job files and plans differ" in told
        assert not (world.folder / party / "out").exists()
        assert not (world.folder / party / "dp-ledger.sqlite").exists()


def reversed_mapping(mapping: dict[str, Any]) -> dict[str, Any]:
    return dict(reversed(mapping.items()))


def test_parties_whose_files_list_the_same_in_another_order_have_one_plan_and_the_right_sums(
    tmp_path: pathlib.Path,
) -> None:
    """Numbers are added by name: by place, counts would be added to sums, and groups and stages to others."""
    content = job(free_ports(3))
    sales = content["stages"]["sales"]
    content["stages"]["all"] = {"kind": "aggregate", "partition_by": [], "bounds": {"max_contributions": 4}}
    content["stages"]["all"]["metrics"] = {"everything": {"kind": "count"}}
    content["budget"]["epsilon"] = 30.0
    world = World.made(tmp_path, content)
    other = {**content, "stages": reversed_mapping(content["stages"])}
    other["stages"]["sales"] = {
        **reversed_mapping(sales),
        "metrics": reversed_mapping(sales["metrics"]),
        "partitions": {"public": [*reversed(sales["partitions"]["public"])]},
    }
    world.path("south").write_text(yaml.safe_dump(other, sort_keys=False))
    members = content["parties"]["members"]
    parties = {**content["parties"], "members": {name: members[name] for name in ("north", "notary", "south")}}
    world.path("north").write_text(yaml.safe_dump({**content, "parties": parties}, sort_keys=False))
    for code, _, messages in world.together("--run-id", "r").values():
        assert code == 0, messages
    manifests = [json.loads((world.folder / party / "out" / "manifest.json").read_text()) for party in PARTIES]
    assert len({manifest["plan"] for manifest in manifests}) == 1
    tables = {party: pq.read_table(world.folder / party / "out" / "sales.parquet") for party in PARTIES}
    columns = [column for name in sales["metrics"] for column in (name, f"{name}_stddev")]
    assert tables["north"].column_names == tables["notary"].column_names == ["region", *columns]
    in_its_order = [column for name in reversed(sales["metrics"]) for column in (name, f"{name}_stddev")]
    assert tables["south"].column_names == ["region", *in_its_order]
    assert tables["south"].select(tables["north"].column_names).equals(tables["north"])
    for row in tables["north"].to_pylist():
        rows_of = [table.filter(pc.equal(table["region"], row["region"])) for table in (NORTH, SOUTH)]
        people = sum(len(table["customer"].unique()) for table in rows_of)
        near = 12 * row["buyers_stddev"]
        # Two of three regions of each person stay.
        assert people / 2 - near <= row["buyers"] <= people + near
        assert row["buyers"] - near - 12 * row["orders_stddev"] <= row["orders"]
        assert row["orders"] <= 2 * people + 12 * row["orders_stddev"]
        assert row["orders"] == pytest.approx(row["revenue"] / 50, abs=0.3 * people + row["revenue_stddev"])
    (total,) = pq.read_table(world.folder / "south" / "out" / "all.parquet").to_pylist()
    assert abs(total["everything"] - len(NORTH) - len(SOUTH)) <= 12 * total["everything_stddev"] < len(SOUTH) / 2


def test_parties_of_one_folder_are_refused_since_their_ledger_would_take_them_for_one(tmp_path: pathlib.Path) -> None:
    """They waited for each other until the time was over, and each attempt shared the table of whoever came first."""
    said = job(free_ports(3))
    said["parties"]["wait_seconds"] = 20
    world = World.made(tmp_path, said)
    started = {p: world.start("south" if p == "north" else p, "--run-id", "r", "--party", p, output=p) for p in PARTIES}
    for party, process in started.items():
        _, told = process.communicate(timeout=120)
        assert process.returncode == 2, told
        assert "is the ledger of two parties" in told
        assert not (world.path(party).parent / "dp-ledger.sqlite").exists()


def run_alone(world: World, party: str, run_id: str) -> int:
    """Charge a party's ledger for another job on the same rows."""
    own = yaml.safe_load(world.path(party).read_text())
    del own["parties"]
    path = world.path(party).with_name("own.yaml")
    path.write_text(yaml.safe_dump(own, sort_keys=False))
    return main(["run", str(path), "--output", str(path.with_name(run_id)), "--run-id", run_id])


def test_a_party_whose_ledger_has_no_room_is_refused_before_the_others_are_charged(tmp_path: pathlib.Path) -> None:
    said = job(free_ports(3))
    said["parties"]["wait_seconds"] = 5
    world = World.made(tmp_path, said)
    assert run_alone(world, "south", "own") == 0
    ended = world.together("--run-id", "r")
    assert {party: code for party, (code, _, _) in ended.items()} == {"north": 1, "south": 3, "notary": 1}, ended
    for party in ("north", "notary"):
        assert "nothing was charged" in ended[party][2]
        assert not (world.folder / party / "dp-ledger.sqlite").exists()


@pytest.mark.slow
@pytest.mark.parametrize("split", ["constant", "linear"])
def test_a_party_that_was_charged_alone_meets_the_others_unless_their_noise_would_differ(
    tmp_path: pathlib.Path, split: str
) -> None:
    said = job(free_ports(3), budget={"epsilon": 1.0, "delta": 1e-6, "runs": 3, "split": split})
    said["parties"]["wait_seconds"] = 60
    world = World.made(tmp_path, said)
    path = world.path("north")
    asked, plan = planned(path)
    with ledger_account.Book(asked, None, lambda text: None) as book:
        running.admission(asked, plan, "alone")(book.open())  # and then it stopped
    ended = world.together("--run-id", "r")
    if split == "constant":
        assert [code for code, _, _ in ended.values()] == [0, 0, 0], ended
        return
    for party, (code, _, told) in ended.items():
        assert code == 2, told
        assert "rounds differ" in told
        assert "split: constant" in told
        assert (world.folder / party / "dp-ledger.sqlite").exists() == (party == "north")


def test_a_party_that_does_not_come_ends_the_run_before_anything_is_charged(tmp_path: pathlib.Path) -> None:
    said = job(free_ports(3))
    said["parties"]["wait_seconds"] = 3
    world = World.made(tmp_path, said)
    process = world.start("south", "--run-id", "r")
    _, told = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "not all parties came" in told
    assert "nothing was charged" in told
    assert not (world.folder / "south" / "dp-ledger.sqlite").exists()


def frozen_tables(world: World, party: str) -> list[bytes]:
    """The noisy tables that the ledger of a party keeps."""
    with sqlite3.connect(world.folder / party / "dp-ledger.sqlite") as opened:
        tables = [name for (name,) in opened.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = []
        for table in tables:
            for row in opened.execute(f"SELECT * FROM {table}"):
                found += [cell for cell in row if isinstance(cell, bytes) and cell.startswith(b"PAR1")]
    return found


def test_a_table_is_drawn_once_for_all_attempts(tmp_path: pathlib.Path) -> None:
    """With real noise: two draws of these numbers would not be equal."""
    world = World.made(tmp_path / "world", job(free_ports(3)))
    asked, plan = planned(world.path("north"))
    stages, draws = plan.round(1).stages, InMemory()
    parties = asked.file.job.parties
    assert parties is not None
    with open("/dev/null", "w") as nowhere, Progress(nowhere) as progress:
        engine = local_engine.configured([])
        north = PartyProduction(asked, plan, "r", engine, progress, parties=parties, party="north")
        north._freeze(stages, tmp_path, draws)
        first = north._numbers(stages["sales"], draws)
        north._freeze(stages, tmp_path, Recording(draws))
        assert (north._numbers(stages["sales"], draws) == first).all()
        again = InMemory()
        north._freeze(stages, tmp_path, again)
        assert (north._numbers(stages["sales"], again) != first).any()


class Recording:
    """Draws that must not be kept a second time."""

    def __init__(self, kept: InMemory) -> None:
        self.get = kept.get

    def keep(self, name: str, content: bytes) -> None:
        raise AssertionError("drawn again")


@pytest.mark.slow
def test_a_party_that_leaves_ends_the_run_charged_and_the_next_attempt_shares_the_same_table(
    tmp_path: pathlib.Path,
) -> None:
    said = job(free_ports(3))
    said["parties"]["wait_seconds"] = 12
    world = World.made(tmp_path, said)
    started = {party: world.start(party, "--run-id", "r") for party in PARTIES}
    ledger = world.folder / "south" / "dp-ledger.sqlite"
    deadline = time.monotonic() + 60
    while not ledger.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    started["notary"].kill()  # all have met, and are about to add
    ends = {party: process.communicate(timeout=120)[1] for party, process in started.items()}
    if any(started[party].returncode == 0 for party in ("north", "south")):
        pytest.skip("the others were done before the third one left")
    for party in ("north", "south"):
        assert started[party].returncode == 1, ends
        assert "the run stays charged" in ends[party]
        assert not (world.folder / party / "out").exists()
    frozen = [frozen_tables(world, party) for party in ("north", "south")]
    assert [len(tables) for tables in frozen] == [1, 1]
    assert [code for code, _, _ in world.together("--run-id", "r").values()] == [0, 0, 0]
    stage = planned(world.path("north"))[1].round(1).stages["sales"]
    sums = sum(party_tables.numbers_of(pq.read_table(io.BytesIO(table)), stage) for (table,) in frozen)
    assert pq.read_table(world.folder / "north" / "out" / "sales.parquet").equals(party_tables.opened(sums, stage))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"partitions": {"private": {}}}, "must be a public list"),
        (
            {"metrics": {"m": {"kind": "variance", "column": "amount", "min_value": 0, "max_value": 1}}},
            "not one of count",
        ),
        ({"metrics": {"m": {"kind": "count", "stddev": 5}}}, "stddev"),
        ({"top": {"k": 1, "by": "orders"}}, "top"),
        ({"kept": {"share": 0.1}}, "kept"),
    ],
)
def test_what_parties_cannot_release_together_is_refused(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], changed: dict[str, Any], words: str
) -> None:
    said = job(free_ports(3))
    said["stages"]["sales"] |= changed
    world = World.made(tmp_path, said)
    assert main(["plan", str(world.path("north"))]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--party: is required"),
        (["--party", "nort"], "none of the job's parties"),
        (["--party", "north", "--ledger", "none"], "must not be drawn again"),
        (["--party", "north", "--synthetic"], "--synthetic"),
    ],
)
def test_a_run_of_parties_says_which_one_it_is_and_has_a_ledger(
    world: World, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    output = str(world.folder / "north" / "refused")
    assert main(["run", str(world.path("north")), "--output", output, *arguments]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda members: members.pop("notary"), "must be 3"),
        (lambda members: members["south"].update(rows=False), "must have rows at two"),
        (lambda members: members["south"].update(address=members["north"]["address"]), "one address"),
        (lambda members: members["south"].update(address="127.0.0.1"), "host:port"),
        (lambda members: members["south"].update(address="1.2.3.4.5:80"), "host:port"),
    ],
)
def test_wrong_members_are_refused(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], change: Any, words: str
) -> None:
    said = job(free_ports(3))
    change(said["parties"]["members"])
    world = World.made(tmp_path, said)
    assert main(["plan", str(world.path("north"))]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("people", ["any", "disjoint"])
def test_a_plan_of_parties_and_all_its_records_are_what_they_were(tmp_path: pathlib.Path, people: str) -> None:
    """A ledger that has frozen such a plan finds it again; whoever means to change it writes golden.json anew."""
    said = job([14431, 14432, 14433])
    said["parties"]["people"] = people
    _, plan = planned(World.made(tmp_path, said).path("north"))
    kept = json.loads(pathlib.Path(__file__).with_name("golden.json").read_text())[people]
    assert plan.digest == kept["digest"]
    assert [record.to_json() for record in plan.mechanisms] == kept["mechanisms"]
