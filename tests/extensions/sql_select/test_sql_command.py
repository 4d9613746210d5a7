"""`dp-pipelines sql`: one statement is planned and run as the job that somebody would write by hand."""

import io
import json
import pathlib

import pytest

from dp_pipelines.jobs.spec import job_file
from dp_pipelines.ledger.ledger import DEFAULT_NAME
from tests.helpers import warm_process
from tests.jobs.conftest import Said, Shop

STATEMENT = (
    "SELECT product, count(*) AS orders, count(DISTINCT customer) AS buyers, avg(price) AS price FROM 'data/*.parquet' "
    "WHERE store > 1 GROUP BY ALL HAVING orders > 50 ORDER BY orders DESC LIMIT 4"
)
BUDGET = ("--dataset", "shop", "--unit", "customer", "--epsilon", "8", "--delta", "1e-5")
BOUNDS = ("--max-partitions-contributed", "3", "--max-contributions-per-partition", "2")
ASKED = (*BUDGET, *BOUNDS, "--clip", "price=0:20")


@pytest.fixture
def here(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The shop's folder, in which the command runs."""
    monkeypatch.chdir(shop.folder)
    return shop.folder


def test_a_plan_comes_with_the_job_file_that_it_stands_for(here, call):
    said = call("sql", STATEMENT, *ASKED, "--plan")
    assert (said.code, said.err) == (0, "")
    text, _, plan = said.out.partition("\nbudget     epsilon 8")
    by_hand = job_file.read(text, here / "job.yaml", "job.yaml").job
    assert by_hand.where == "store > 1"
    assert by_hand.stages["result"].having == "orders > 50"
    assert "orders" in plan
    assert not (here / "dp-releases").exists()
    again = call("sql", STATEMENT, *ASKED, "--plan", "--json")
    pathlib.Path("written.yaml").write_text(text)
    assert json.loads(again.out) == json.loads(call("plan", "written.yaml", "--json").out)


@pytest.mark.parametrize(
    "wrong", [["--bogus"], ["--bogus=3"], ["--num_workers=3"], ["--threads", "x"], ["--runner", "flunk"]]
)
def test_a_plan_refuses_the_options_that_the_run_refuses(wrong, here, call):
    planned, run = (call("sql", STATEMENT, *ASKED, *wrong, *more) for more in (["--plan"], ["--ledger", "none"]))
    assert (planned.code, planned.out) == (2, "")
    assert (planned.code, planned.err) == (run.code, run.err)


def test_a_statement_comes_from_a_file_or_from_standard_input(here, call, monkeypatch):
    wanted = call("sql", STATEMENT, *ASKED, "--plan").out
    pathlib.Path("query.sql").write_text(STATEMENT + ";\n")
    assert call("sql", "@query.sql", *ASKED, "--plan").out == wanted
    monkeypatch.setattr("sys.stdin", io.StringIO(STATEMENT))
    assert call("sql", "-", *ASKED, "--plan").out == wanted


def test_from_may_be_a_name_for_the_files_of_an_option(here, call):
    named = STATEMENT.replace("'data/*.parquet'", "orders")
    said = call("sql", named, *ASKED, "--plan", "--source", "data/*.parquet")
    assert said.out == call("sql", STATEMENT, *ASKED, "--plan").out


def test_csv_files_need_types(here, call):
    pathlib.Path("rows.csv").write_text("customer,price\n1,2\n")
    text = "SELECT count(*) AS n FROM 'rows.csv'"
    assert "--type: is needed" in call("sql", text, *BUDGET, "--max-contributions", "1", "--plan").err
    said = call("sql", text, *BUDGET, "--max-contributions", "1", "--plan", "--type", "customer=int")
    assert (said.code, "csv: rows.csv" in said.out) == (0, True)


OF_TABS = (
    "SELECT sum(price) AS p FROM 'rows.tsv'",
    *BUDGET,
    "--max-contributions",
    "1",
    "--clip",
    "price=0:9",
    "--plan",
)
TYPES = ("--type", "customer=string", "--type", "price=double")


@pytest.mark.parametrize("tab", ["tab", "\\t", "\t"])
def test_options_say_how_csv_files_are_written(tab, here, call):
    pathlib.Path("rows.tsv").write_bytes("customer\tprice\nJos\u00e9\t1,5\n".encode("latin-1"))
    written = ("--delimiter", tab, "--decimal", ",", "--encoding", "latin-1", "--nulls", "", "--nulls", "-")
    said = call("sql", *OF_TABS, *TYPES, *written)
    assert (said.code, said.err) == (0, "")
    source = job_file.read(said.out.partition("\nbudget ")[0], here / "job.yaml", "job.yaml").job.source
    assert (source.delimiter, source.decimal, source.encoding, source.nulls) == ("\t", ",", "latin-1", ["", "-"])


def test_what_is_wrong_with_how_csv_files_are_written_is_told_by_its_option(here, call):
    pathlib.Path("rows.tsv").write_text("customer\tprice\nann\t1.5\n")
    said = call("sql", *OF_TABS, *TYPES)
    assert (said.code, said.out) == (2, "")
    assert said.err.endswith("its separator seems to be a tab; add --delimiter tab\n")
    assert "error: --delimiter: must be one ASCII character" in call("sql", *OF_TABS, *TYPES, "--delimiter", "::").err
    assert "error: --decimal: must be one of ., ," in call("sql", *OF_TABS, *TYPES, "--decimal", ";").err
    assert "error: --delimiter: is for CSV files only" in call("sql", N, *ASKED, "--delimiter", ";").err


N = "SELECT product, count(*) AS n FROM 'data/*.parquet' GROUP BY ALL"
P = "SELECT avg(price) AS p FROM 'data/*.parquet'"
WRONG = {
    "a table without files": ((N.replace("'data/*.parquet'", "orders"), *ASKED), "SQL: names no files: FROM orders; write FROM"),
    "two tables": ((N, *ASKED, "--source", "x/*.parquet"), "--source: names other files than FROM"),
    "no such files": ((N.replace("data", "dota"), *BUDGET, *BOUNDS), "FROM: matches no file: 'dota/*.parquet'"),
    "no unit": ((N, "--dataset", "shop", "--epsilon", "1", "--delta", "0.1", *BOUNDS), "--unit: is missing"),
    "no epsilon": ((N, "--dataset", "shop", "--unit", "customer", *BOUNDS), "--epsilon: is missing"),
    "epsilon in words": ((N, *BUDGET[:4], "--epsilon", "one", *BOUNDS), "--epsilon: must be a number"),
    "a negative epsilon": ((N, *BUDGET[:4], "--epsilon", "-1", "--delta", "0", *BOUNDS), "--epsilon: must be above 0"),
    "no groups": ((N, *BUDGET, *BOUNDS[2:]), "--max-partitions-contributed: must say how much one privacy unit may contribute"),
    "no rows": ((N, *BUDGET, *BOUNDS[:2]), "--max-contributions-per-partition: is needed by metrics.n"),
    "half a row": ((N, *BUDGET, "--max-contributions", "2.5"), "--max-contributions: must be a whole number"),
    "no range": ((P, *BUDGET, "--max-contributions", "2"), "SQL line 1, column 8: needs bounds of the values of 'price'"),
    "a range of words": ((P, *BUDGET, "--clip", "price=a:b"), "--clip price: must be a range of two numbers"),
    "a range without end": ((P, *BUDGET, "--clip", "price"), "--clip: must have a name, = and a value"),
    "two ranges": ((P, *BUDGET, "--clip", "price=0:1", "--clip", "price=0:1"), "--clip price: is given twice"),
    "an unused range": ((N, *ASKED), "--clip price: is the range of a column or metric that has no use for one here"),
    "a column": ((N.replace("product", "prodcut"), *BUDGET, *BOUNDS), "SQL line 1, column 8: partition_by: names column"),
    "types of Parquet": ((N, *BUDGET, *BOUNDS, "--type", "a=int"), "--type: is for CSV files only"),
    "gzipped files": ((N.replace("parquet", "parquet.gz"), *ASKED), "file 'data/*.parquet.gz': is compressed; only CSV and JSON"),
    "gzipped CSV without types": ((N.replace("parquet", "csv.gz"), *ASKED), "--type: is needed for each column of CSV files"),
    "no file": (("@none.sql", *BUDGET), "@none.sql: cannot be read as UTF-8 text"),
    "an output beside the rows": ((N, *BUDGET, *BOUNDS, "--output", "data/out"), "--ledger: is not named, and would be made"),
    "a run id": ((N, *BUDGET, *BOUNDS, "--run-id", "a b"), "--run-id: must have"),
    "another epsilon in the clause": (
        (N.replace("SELECT", "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1)"), *BUDGET, *BOUNDS),
        "SQL line 1, column 50: is another value than what is said beside the statement: budget epsilon",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_told_by_option_or_place_and_makes_nothing(case, here, call):
    arguments, said = WRONG[case]
    before = sorted(here.rglob("*"))
    found = call("sql", *arguments)
    assert (found.code, found.out) == (2, "")
    assert f"error: {said}" in found.err
    assert sorted(here.rglob("*")) == before


def test_the_dataset_must_be_named(call):
    assert call("sql", N).code == 2


@pytest.mark.slow
def test_a_statement_is_answered_once_and_its_answer_is_given_again(here):
    def command(*arguments: str) -> Said:
        """The installed command in a process of its own."""
        done = warm_process.run(["sql", *arguments], folder=here)
        return Said(done.returncode, done.stdout, done.stderr)

    said = command(STATEMENT, *ASKED, "--output", "out/orders")
    assert said.code == 0, said.err
    assert f"note: the ledger is {here / 'out' / DEFAULT_NAME}" in said.err
    assert "opens the account" in said.err
    shown = [line.split()[0] for line in said.out.splitlines() if line.startswith(" p") and "product" not in line]
    assert len(shown) == 4
    assert "pass `orders > 50`" in said.out
    again = command(STATEMENT, *ASKED, "--output", "out/orders")
    assert (again.code, again.out.splitlines()[1:9]) == (0, said.out.splitlines()[:8])
    assert again.out.startswith("This run was already published")
    assert "opens the account" not in again.err
    # Another question is another charge, which this account has no room for.
    other = command(STATEMENT.replace("> 50", "> 60"), *ASKED, "--output", "out/others")
    assert (other.code, other.out) == (3, "")


def test_a_statement_that_has_only_other_names_than_a_released_one_is_refused(here, call, shop):
    text = "SELECT product, count(*) AS orders, avg(price) AS price FROM 'data/*.parquet' GROUP BY ALL"
    options = ("--ledger", here / DEFAULT_NAME)
    assert call("sql", text, *ASKED, *options, "--output", "one").code == 0
    charged = shop.charged()
    for renamed, more in ((text.replace("orders", "bestellungen"), ()), (text, ("--name", "answer"))):
        said = call("sql", renamed, *ASKED, *more, *options, "--output", "two")
        assert said.code == 2
        assert "run: has a statement with only other names than that of run " in said.err
        assert "rename columns of the published table, which is free; or give --as-new" in said.err
        assert "label:" not in said.err
        assert "costs another epsilon" not in said.err
        assert shop.charged() == charged
        assert not pathlib.Path("two").exists()
    assert call("sql", text, *ASKED, *options, "--output", "again").code == 0, "it is the same release"
    assert shop.charged() == charged
    renamed = text.replace("orders", "bestellungen")
    assert call("sql", renamed, *ASKED, *options, "--output", "two", "--as-new").code == 0
    assert shop.charged() != charged
    other = text.replace("count(*)", "count(price)")
    charged_other = call("sql", other, *ASKED, *options, "--output", "three")
    assert charged_other.code == 0
    assert (
        "note: this statement differs from earlier ones, and from jobs, on these data, so it costs" in charged_other.err
    )
    assert "label, measure" not in charged_other.err
