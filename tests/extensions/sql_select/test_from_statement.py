"""A SELECT statement says what somebody would write into a job file by hand; what it cannot say is refused where it stands."""

import itertools
import pickle

import pytest

from dp_pipelines.errors import RequestError
from dp_pipelines.extensions.sql_select.from_statement import StatementParts, read
from dp_pipelines.extensions.sql_select.syntax import StatementError, parse, tree_of
from dp_pipelines.jobs.sql.parse_tree import is_blank

UNIT = ["customer"]
CLIPS = {"price": [0, 1000]}


def parts(text: str, **given: object) -> StatementParts:
    """What a statement says, for the shop's unit and prices."""
    return read(text, **{"unit": UNIT, "clips": CLIPS if "price" in text else {}, **given})


def test_the_statement_of_the_readme_is_a_stage():
    said = parts(
        "SELECT region, week, count(*) AS orders, count(DISTINCT customer) AS buyers, avg(price) AS price, "
        "median(price) AS typical FROM 'data/*.parquet' WHERE amount > 0 GROUP BY ALL HAVING orders > 50 "
        "ORDER BY orders DESC LIMIT 20"
    )
    bounds = {"min_value": 0, "max_value": 1000}
    assert said.stage == {
        "partition_by": ["region", "week"],
        "metrics": {
            "orders": {"kind": "count"},
            "buyers": {"kind": "privacy_id_count"},
            "price": {"kind": "mean", "column": "price", **bounds},
            "typical": {"kind": "median", "column": "price", **bounds},
        },
        "having": "orders > 50",
        "order_by": ["orders desc"],
        "limit": 20,
    }
    assert (said.table, said.where, said.columns) == ("data/*.parquet", "amount > 0", {})


@pytest.mark.parametrize(
    ("groups", "levels"),
    [
        ("ROLLUP (region, week)", [[], ["region"], ["region", "week"]]),
        ("ROLLUP (week, region)", [[], ["week"], ["region", "week"]]),
        ("ROLLUP (1, 2)", [[], ["region"], ["region", "week"]]),
        ("region, ROLLUP (week)", [["region"], ["region", "week"]]),
        ("ROLLUP ((region, week))", [[], ["region", "week"]]),
        ("CUBE ((region, week))", [[], ["region", "week"]]),
        ("GROUPING SETS ((week, region), (region), ())", [[], ["region"], ["region", "week"]]),
        ("GROUPING SETS ((region, week))", None),
        ("region, week", None),
    ],
)
def test_sets_of_groups_that_are_a_chain_are_the_levels_of_a_rollup(
    groups: str, levels: list[list[str]] | None
) -> None:
    said = parts(f"SELECT region, week, count(*) AS orders FROM source GROUP BY {groups} ORDER BY orders DESC")
    assert said.stage.get("rollup") == levels
    assert said.stage["partition_by"] == ["region", "week"]


AGGREGATES = {
    "count(*)": {"kind": "count"},
    "count()": {"kind": "count"},
    "count(customer)": {"kind": "count"},
    "count(DISTINCT customer)": {"kind": "privacy_id_count"},
    "approx_count_distinct(customer)": {"kind": "privacy_id_count"},
    "count(DISTINCT product)": {"kind": "distinct_count", "column": "product"},
    "sum(price)": {"kind": "sum", "column": "price", "min_value": 0, "max_value": 1000},
    "mean(price)": {"kind": "mean", "column": "price", "min_value": 0, "max_value": 1000},
    "var_pop(price)": {"kind": "variance", "column": "price", "min_value": 0, "max_value": 1000},
    "geomean(price)": {"kind": "geometric_mean", "column": "price", "min_value": 0, "max_value": 1000},
    "min(price)": {"kind": "min", "column": "price", "min_value": 0, "max_value": 1000},
    "max(price)": {"kind": "max", "column": "price", "min_value": 0, "max_value": 1000},
    "quantile_cont(price, 0.5)": {"kind": "median", "column": "price", "min_value": 0, "max_value": 1000},
    "quantile_cont(price, [0.1, 0.9])": {
        "kind": "quantiles", "column": "price", "quantiles": [0.1, 0.9], "min_value": 0, "max_value": 1000,
    },
    "percentile_cont(0.9) WITHIN GROUP (ORDER BY price)": {
        "kind": "quantiles", "column": "price", "quantiles": [0.9], "min_value": 0, "max_value": 1000,
    },
    "histogram(note, [0, 10, 100])": {"kind": "histogram", "column": "note", "edges": [0, 10, 100]},
    "histogram(note, ['S', 'M'])": {"kind": "histogram", "column": "note", "categories": ["S", "M"]},
    "sum(amount, contribution_bounds_per_group => (0, 500))": {
        "kind": "sum", "column": "amount", "min_sum_per_partition": 0, "max_sum_per_partition": 500,
    },
}  # fmt: skip


@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_an_aggregate_is_a_metric(aggregate):
    assert parts(f"SELECT {aggregate} AS x FROM source").stage["metrics"] == {"x": AGGREGATES[aggregate]}


FLAGS = {
    "count(note)": "CAST(note IS NOT NULL AS INTEGER)",
    "count_if(price > 3)": "CASE WHEN price > 3 THEN 1 ELSE 0 END",
    "count(*) FILTER (WHERE price > 3)": "CASE WHEN price > 3 THEN 1 ELSE 0 END",
}


@pytest.mark.parametrize("aggregate", FLAGS)
def test_a_count_of_some_rows_is_the_sum_of_a_column_of_ones(aggregate):
    said = parts(f"SELECT {aggregate} AS x FROM source", clips={})
    assert said.columns == {"x": FLAGS[aggregate]}
    assert said.stage["metrics"] == {"x": {"kind": "sum", "column": "x", "min_value": 0, "max_value": 1}}


def test_a_filtered_sum_reads_null_where_the_filter_leaves_a_row_out():
    said = parts("SELECT sum(price) FILTER (WHERE store = 1) AS of_one FROM source", clips={"of_one": [0, 5]})
    assert said.columns == {"of_one": "CASE WHEN store = 1 THEN price END"}


@pytest.mark.parametrize(
    "by",
    [
        "GROUP BY ALL",
        "GROUP BY 1, 2",
        "GROUP BY date_trunc('week',paid_at), r",
        "GROUP BY week, region",
        "GROUP BY 2, 1",
    ],
)
def test_group_by_names_keys_by_place_name_alias_or_text(by):
    said = parts(f"SELECT date_trunc('week', paid_at) AS week, region AS r, count(*) AS n FROM source {by}")
    assert said.stage["partition_by"] == ["week", "r"]
    assert said.columns == {"week": "date_trunc('week', paid_at)", "r": "region"}


def test_without_keys_it_is_a_total_and_without_aggregates_the_groups_alone():
    assert parts("SELECT count(*) AS n FROM source").stage["partition_by"] == []
    assert parts("SELECT region FROM source GROUP BY region").stage == {"partition_by": ["region"], "metrics": {}}


def test_equal_expressions_are_one_column_with_one_range():
    text = "SELECT sum(price * amount) AS revenue, avg(price*amount) AS basket FROM source"
    said = parts(text, clips={"revenue": [0, 50]})
    assert said.columns == {"revenue": "price * amount"}
    assert {metric["column"] for metric in said.stage["metrics"].values()} == {"revenue"}


def test_what_has_no_name_gets_one_that_says_what_it_is():
    text = (
        "SELECT upper(region), count(*), count(DISTINCT product), avg(price), sum(price * 2) FROM source GROUP BY ALL"
    )
    said = parts(text, clips={"price": [0, 1], "sum_price_2": [0, 2]})
    assert said.stage["partition_by"] == ["upper_region"]
    assert list(said.stage["metrics"]) == ["count", "count_distinct_product", "avg_price", "sum_price_2"]


def test_a_metric_that_is_called_as_a_column_leaves_that_column_alone():
    said = parts("SELECT sum(price * 2) AS price FROM source")
    assert said.columns == {"price_2": "price * 2"}
    assert said.stage["metrics"]["price"]["column"] == "price_2"


@pytest.mark.parametrize(
    "having", ["orders > 50", "count(*) > 50", "(COUNT(*)) > 50", "region = 'north' OR count(*) > 1"]
)
def test_having_speaks_of_released_columns(having):
    said = parts(f"SELECT region AS r, count(*) AS orders FROM source GROUP BY ALL HAVING {having}")
    wanted = having.replace("(COUNT(*))", "(orders)").replace("count(*)", "orders").replace("region", "r")
    assert said.stage["having"] == wanted


def test_order_by_takes_names_places_and_aggregates():
    text = "SELECT region, count(*) AS n, avg(price) AS p FROM source GROUP BY ALL ORDER BY avg(price) DESC, 1 ASC, n, p_stddev"
    assert parts(text).stage["order_by"] == ["p desc", "region asc", "n", "p_stddev"]


def test_parameters_stand_in_expressions_as_they_were_written():
    text = "SELECT greatest(price, {least}) AS p, count(*) AS n FROM source WHERE day >= {week} AND day < {week} + 7 GROUP BY ALL"
    said = parts(text, params=["week", "least"], clips={})
    assert said.where == "day >= {week} AND day < {week} + 7"
    assert said.columns == {"p": "greatest(price, {least})"}
    with pytest.raises(StatementError, match="column 44: names a parameter that params: does not declare: week"):
        parts("SELECT count(*) AS n FROM source WHERE d > {week}")


RANGES = [
    ([0, 10], "sum(price)", {"min_value": 0, "max_value": 10}),
    (["auto", 0, 10], "sum(price)", {"min_value": 0, "max_value": "auto", "within": [0, 10]}),
    (["auto", -5, 10], "avg(price)", {"min_value": "auto", "max_value": "auto", "within": [-5, 10]}),
    (["auto", 0, 10], "median(price)", {"min_value": 0, "max_value": 10}),
    ({"min_value": 1, "max_value": 2}, "sum(price)", {"min_value": 1, "max_value": 2}),
]


@pytest.mark.parametrize(("given", "aggregate", "wanted"), RANGES)
def test_a_range_is_that_of_each_metric_of_its_column(given, aggregate, wanted):
    metric = parts(f"SELECT {aggregate} AS x FROM source", clips={"price": given}).stage["metrics"]["x"]
    assert {key: metric[key] for key in wanted} == wanted
    assert set(metric) == {"kind", "column", *wanted}


def test_settings_say_what_a_statement_cannot():
    text = "SELECT avg(price) AS p, sum(amount) AS a FROM source"
    settings = {"p": {"nullable": False, "weight": 0.5}, "a": {"min_sum_per_partition": 0, "max_sum_per_partition": 9}}
    said = parts(text, settings=settings).stage["metrics"]
    assert said["p"] == {"kind": "mean", "column": "price", "min_value": 0, "max_value": 1000, **settings["p"]}
    assert said["a"] == {"kind": "sum", "column": "amount", **settings["a"]}


BESIDE = [
    ({"clips": {"prize": [0, 1], "price": [0, 1]}}, "clips.prize", "did you mean 'price'"),
    ({"clips": {"price": 3}}, "clips.price", "must be a range"),
    ({"clips": {"price": {"low": 3}}}, "clips.price", "unknown key"),
    ({"settings": {"q": {"weight": 2}}}, "settings.q", "is no metric of the statement"),
    ({"settings": {"p": {"column": "x"}}}, "settings.p.column", "is said by the statement"),
]


@pytest.mark.parametrize(("given", "field", "words"), BESIDE)
def test_what_stands_beside_and_has_no_use_is_refused(given, field, words):
    with pytest.raises(RequestError, match=words) as caught:
        parts("SELECT avg(price) AS p FROM source", **given)
    assert caught.value.field == field


def test_a_range_whose_name_is_a_metric_and_a_column_of_another_is_refused():
    with pytest.raises(RequestError, match="could be of either"):
        parts("SELECT avg(cost) AS price, avg(price) AS p FROM source")


WRONG = {
    "SELECT region, count(*) AS n FROM source": (1, 8, "is not in GROUP BY", "GROUP BY ALL"),
    "SELECT count(*) AS n\nFROM source\nGROUP BY region": (3, 10, "groups by what is not selected", "add it to SELECT"),
    "SELECT count(*) AS n FROM source GROUP BY 1": (1, 43, "is not the place of a column to group by", "count from 1"),
    "SELECT count(*) AS n FROM source GROUP BY 7": (1, 43, "is not the place of a column to group by", "count from 1"),
    "SELECT count(*) FROM source HAVING sum(x) > 3": (1, 36, "is not selected: sum(x)", "add it to SELECT"),
    "SELECT count(*) AS orders FROM source HAVING order > 3": (1, 46, "is not SQL", "check the SQL"),
    "SELECT count(*) AS orders FROM source HAVING ordres > 3": (1, 46, "is no released column", "did you mean orders?"),
    "SELECT count(*) AS n FROM source ORDER BY max(x)": (1, 43, "is not selected: max(x)", "add it to SELECT"),
    "SELECT count(*) AS n FROM source ORDER BY 2": (1, 43, "is no place in SELECT", "count from 1"),
    "SELECT count(*) AS n FROM source ORDER BY n + 1": (1, 43, "is no released column", "order by one of: n"),
    "SELECT count(*) AS n FROM source ORDER BY n NULLS LAST": (1, 43, "says where nulls stand", "drop"),
    "SELECT a, count(*) AS n FROM source GROUP BY ALL ORDER BY ALL": (None, None, "is no released column", "a, n"),
    "SELECT sum(x) / count(*) FROM source": (1, 8, "computes with aggregates and has no name", "AS basket"),
    "SELECT avg(price) FROM source": (1, 8, "needs bounds of the values of 'price'", "auto:0:100000"),
    "SELECT median(price) FROM source": (1, 8, "needs bounds of the values of 'price'", "--clip price=0:1000"),
    "SELECT stddev_pop(x) FROM source": (1, 8, "has no differentially private form", "select var_pop"),
    "SELECT mode(x) FROM source": (1, 8, "has no differentially private form", "ORDER BY the count DESC LIMIT 1"),
    "SELECT string_agg(x, ',') FROM source": (1, 8, "has no differentially private form", "cannot be published"),
    "SELECT bit_and(x) FROM source": (1, 8, "has no differentially private form", "there are count"),
    "SELECT cuont(*) FROM source": (1, 8, "calls a function that is not known: cuont", "did you mean count?"),
    "SELECT sum(a, b) FROM source": (1, 15, "is one argument too many", "drop it"),
    "SELECT sum(DISTINCT a) FROM source": (1, 8, "uses DISTINCT in sum", "only count"),
    "SELECT sum(a ORDER BY b) FROM source": (1, 23, "uses ORDER BY inside an aggregate", "drop it"),
    "SELECT count(DISTINCT customer) FILTER (WHERE a) FROM source": (1, 47, "uses FILTER", "WHERE"),
    "SELECT quantile_cont(price) FROM source": (1, 8, "needs the number of the quantile", "0.9"),
    "SELECT quantile_cont(price, x) FROM source": (1, 29, "must be written out", "plain number"),
    "SELECT histogram(price) FROM source": (1, 8, "needs its bins", "must not come from the data"),
    "SELECT count(*) OVER () FROM source": (1, 8, "uses a window function", "unit_columns"),
    "SELECT (SELECT 1), count(*) FROM source": (1, 8, "holds a subquery", "one SELECT"),
    "SELECT * FROM source": (1, 8, "selects *", "name the columns"),
    "SELECT 1, count(*) FROM source GROUP BY ALL": (1, 8, "selects a constant", "name columns"),
    "SELECT DISTINCT region FROM source": (1, 17, "uses DISTINCT", "GROUP BY ALL"),
    "SELECT a, a FROM source GROUP BY ALL": (1, 11, "has the name of another column", "AS"),
    "SELECT source.a, count(*) FROM source GROUP BY ALL": (1, 8, "names a column with its table", "write a"),
    "SELECT b AS a, count(*) FROM source WHERE a > 1 GROUP BY ALL": (1, 8, "gets the name of a column", "another name"),
    "SELECT count(*) FROM a, b": (1, 17, "joins tables", "lookup"),
    "SELECT count(*) FROM a JOIN b USING (c)": (1, 22, "joins tables", "lookup"),
    "SELECT count(*) FROM (SELECT 1)": (1, 22, "reads from a subquery", "one SELECT"),
    "SELECT count(*) FROM read_parquet('a')": (1, 22, "reads from a table function", "FROM 'data/*.parquet'"),
    "SELECT count(*)": (None, None, "has no FROM", "name the rows"),
    "SELECT count(*) FROM shop.orders": (1, 22, "uses a table with a schema", "one word"),
    "SELECT count(*) FROM a AS b(c)": (1, 22, "uses names of columns behind the table", "AS"),
    "SELECT count(*) FROM a TABLESAMPLE 10%": (1, 22, "uses a sample of the rows", "drop it"),
    "SELECT count(*) FROM a USING SAMPLE 10": (1, 8, "uses a sample of the rows", "drop it"),
    "SELECT count(*) FROM a AT (VERSION => 3)": (1, 22, "uses a version of a table", "files"),
    "WITH b AS (SELECT 1) SELECT count(*) FROM b": (1, 19, "uses WITH", "one SELECT"),
    "SELECT a FROM b GROUP BY a QUALIFY true": (1, 36, "uses QUALIFY", "HAVING"),
    "SELECT count(*) FROM c GROUP BY GROUPING SETS ((), ())": (1, 8, "is no chain of groups", "of which each"),
    "SELECT a, grouping(a) AS g, count(*) FROM c GROUP BY ROLLUP (a)": (1, 11, "uses GROUPING", "the column level"),
    "SELECT a, b, count(*) FROM c GROUP BY CUBE (a, b)": (1, 45, "is no chain of groups", "write GROUP BY ROLLUP (a, b)"),
    "SELECT a, b, count(*) FROM c GROUP BY\nGROUPING SETS ((a), (b), (a, b))": (2, 17, "is no chain", "part of the next"),
    "SELECT a, b, count(*) FROM c GROUP BY GROUPING SETS ((a, b), (a), (a))": (1, 55, "is no chain", "of which each"),
    "SELECT a, count(*) FROM c GROUP BY ROLLUP (1, a)": (1, 44, "is no chain", "of which each"),
    "SELECT a, b, count(*) FROM c GROUP BY ROLLUP (a)": (1, 11, "is not in GROUP BY", "add GROUP BY ALL"),
    "SELECT a, count(*) AS n FROM c GROUP BY ROLLUP (a)\nHAVING n > 3": (2, 8, "choose rows too: HAVING", "rollup: beside"),
    "SELECT a, count(*) AS n FROM c GROUP BY ROLLUP (a)\nORDER BY n LIMIT 3": (2, 18, "choose rows too: LIMIT", "rollup: beside"),
    "SELECT a FROM b GROUP BY a ORDER BY a LIMIT 5 OFFSET 2": (1, 54, "uses OFFSET", "drop it"),
    "SELECT a FROM b GROUP BY a ORDER BY a LIMIT 5%": (1, 45, "uses LIMIT with a percentage", "number of rows"),
    "SELECT a FROM b GROUP BY a ORDER BY a LIMIT 2 + 3": (1, 45, "must be written out: LIMIT", "plain number"),
    "SELECT a FROM b GROUP BY a ORDER BY a LIMIT 0": (1, 45, "must be a whole number from 1", ""),
    "SELECT a FROM b GROUP BY a LIMIT 5": (1, 34, "needs ORDER BY", "which rows are the first"),
    "SELECT count(*) FROM b WHERE sum(a) > 1": (1, 30, "is an aggregate inside an expression", "select it by itself"),
    "SELECT count(*) FROM b UNION SELECT 2": (1, 8, "combines several SELECTs", "one statement for each stage"),
    "SELECT count(*) FROM b; SELECT 2": (None, None, "must be one SELECT statement", "for each stage"),
    "DELETE FROM b": (None, None, "must be one SELECT statement", "nothing but SELECT"),
    "SELECT a,\n FRM b c": (2, 8, "is not SQL", "check the SQL"),
    "": (None, None, "must be a SELECT statement", "write e.g."),
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_what_is_not_understood_is_refused_where_it_stands(text):
    line, column, rule, hint = WRONG[text]
    with pytest.raises(StatementError) as caught:
        read(text, unit=UNIT)
    place = f"SQL line {line}, column {column}" if line else "SQL"
    assert caught.value.field == place
    assert rule in caught.value.message
    assert hint in caught.value.message + caught.value.hint


def test_places_count_letters_and_not_bytes():
    with pytest.raises(StatementError, match="line 1, column 38: is not selected"):
        read('SELECT count(*) "ä😀ü€" FROM t HAVING sum(x) > 1', unit=UNIT)


@pytest.mark.parametrize("condition", ["(" * 3000 + "a" + ")" * 3000, " + ".join(["a"] * 9000) + " > 1"])
def test_a_statement_of_any_depth_is_answered_or_refused(condition):
    with pytest.raises(StatementError, match="SQL: is nested too deeply; split it"):
        read(f"SELECT count(*) FROM t WHERE {condition}", unit=UNIT)


def test_names_are_found_in_any_case_of_letters():
    text = 'SELECT region, upper(city) AS "The City", count(*) AS Orders FROM t GROUP BY REGION, "the city" '
    text += "HAVING ORDERS > 3 ORDER BY orders"
    said = parts(text).stage
    assert said["partition_by"] == ["region", "The City"]
    assert (said["having"], said["order_by"]) == ("Orders > 3", ["Orders"])


def test_an_error_survives_a_worker():
    with pytest.raises(StatementError) as caught:
        read("SELECT * FROM t", unit=UNIT)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.offset) == (str(caught.value), 7)


FORMS = [
    "SELECT a, count(*) FROM b AS c WHERE d GROUP BY a HAVING e ORDER BY a LIMIT 5 OFFSET 3",
    "WITH x AS (SELECT 1) SELECT DISTINCT ON (a) * FROM b TABLESAMPLE 3% GROUP BY ALL QUALIFY true USING SAMPLE 3",
]


def _fields(node, of=""):
    """Return each field of the parts of a statement: the kind of the part, the field's name, whether it says something."""
    if isinstance(node, list):
        return set().union(*(_fields(below, of) for below in node))
    if not isinstance(node, dict):
        return set()
    kind = str(node.get("class") or node.get("type") or of)
    here = {(kind, name, not is_blank(below)) for name, below in node.items()}
    return here.union(*(_fields(below, name) for name, below in node.items() if name not in ("value", "cte_map")))


KNOWN_FIELDS = {
    "SELECT_NODE": "type modifiers cte_map select_list from_table where_clause group_expressions group_sets "
    "aggregate_handling having sample qualify",
    "BASE_TABLE": "type alias sample query_location query_location_length schema_name table_name column_name_alias "
    "catalog_name at_clause qualified_name",
    "ORDER_MODIFIER": "type orders",
    "LIMIT_MODIFIER": "type limit offset limit_type",
    "FUNCTION": "class type alias query_location query_location_length function_name schema filter order_bys distinct "
    "is_operator export_state catalog arguments qualified_name",
    "statements": "node named_param_map",
}


def test_these_are_all_fields_that_the_parser_gives_and_others_are_off():
    fields = set().union(*(_fields(tree_of(form)["statements"], "statements") for form in FORMS))
    for kind, names in KNOWN_FIELDS.items():
        known = set(names.split())
        assert known <= {name for of, name, _ in fields if of == kind}, kind
        assert {name for of, name, says_something in fields if of == kind and says_something} <= known, kind


@pytest.mark.parametrize(
    ("kind", "path"), [("statement", ()), ("table", ("from_table",)), ("call", ("select_list", 0))]
)
def test_a_field_that_nobody_knows_is_refused(kind, path, monkeypatch):
    text = "SELECT count(*) AS n FROM source"
    tree = tree_of(text)
    node = tree["statements"][0]["node"]
    for step in path:
        node = node[step]
    node["a_later_form"] = {"x": 1}
    monkeypatch.setattr("dp_pipelines.extensions.sql_select.syntax.tree_of", lambda sql: tree)
    with pytest.raises(
        StatementError, match="uses field 'a_later_form' of a .* node of DuckDB .*, which is not supported"
    ):
        read(text, unit=UNIT)


KEYS = {"region": "region", "week": "date_trunc('week', paid_at)", "big": "price > 10"}
METRICS = {
    "n": ("count(*)", {"kind": "count"}),
    "buyers": ("count(DISTINCT customer)", {"kind": "privacy_id_count"}),
    "total": ("sum(price)", {"kind": "sum", "column": "price", "min_value": 0, "max_value": 1000}),
    "typical": ("median(price)", {"kind": "median", "column": "price", "min_value": 0, "max_value": 1000}),
    "goods": ("count(DISTINCT product)", {"kind": "distinct_count", "column": "product"}),
}


@pytest.mark.parametrize("keys", [*itertools.combinations(KEYS, 1), *itertools.permutations(KEYS, 2), ()])
@pytest.mark.parametrize("metrics", [*itertools.combinations(METRICS, 2)])
def test_every_supported_statement_is_the_stage_written_by_hand(keys, metrics):
    items = [KEYS[key] if KEYS[key] == key else f"{KEYS[key]} AS {key}" for key in keys]
    items[1:1] = [f"{METRICS[name][0]} AS {name}" for name in metrics]  # keys and aggregates may be mixed
    text = f"SELECT {', '.join(items)} FROM source WHERE price < 9 {'GROUP BY ALL' * bool(keys)}"
    text += f" ORDER BY {metrics[0]} DESC LIMIT 3"
    said = read(text, unit=UNIT, clips=CLIPS if {"total", "typical"} & set(metrics) else {})
    assert said.stage == {
        "partition_by": list(keys),
        "metrics": {name: METRICS[name][1] for name in metrics},
        "order_by": [f"{metrics[0]} desc"],
        "limit": 3,
    }
    assert said.columns == {key: KEYS[key] for key in keys if KEYS[key] != key}
    assert said.where == "price < 9"


def test_a_statement_is_read_once_and_for_all():
    assert parse("SELECT a FROM b").node == parse("SELECT a FROM b").node
