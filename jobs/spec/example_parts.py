"""Examples of what stands in job files: whole parts, from which each key has its own.

In: the name of a model. Out: for its JSON schema, and so for editors and for the reference, an example of the part and of each
of its keys. Holds: each part is one that the model takes, and every key of every model is in one
(tests/jobs/spec/test_example_parts.py). Not covered: parts that belong together, which docs/jobs.md shows.
"""

import textwrap
from collections.abc import Mapping
from typing import Any

from dp_pipelines.jobs.spec import yaml_lines

CELLS = """
csv: stores.txt
types: {STORE: int64, rent: double, opened: date, audited_at: timestamp, closed: date}
delimiter: ";"
quote: "'"
decimal: ","
thousands: "."
nulls: ["", "-"]
encoding: cp1252
header: false
names: [STORE, rent, opened, audited_at, closed]
date_format: "%d.%m.%Y"
timestamp_format: "%d.%m.%Y %H:%M"
formats: {closed: "%d %b %Y"}
"""
"""A CSV file that is written unlike most."""

PARTS: dict[str, tuple[str, ...]] = {
    "Job": (
        """
        dataset: shop
        params: {week: {type: date}}
        privacy_unit: CUSTOMER_ID
        budget: {epsilon: 1.0, delta: 1.0e-6}
        source: {parquet: "data/*.parquet"}
        window: {column: SOLD_AT, days: 7, param: week}
        where: "AMOUNT > 0"
        columns: {week: "date_trunc('week', SOLD_AT)"}
        lookup: {parquet: stores.parquet, on: STORE}
        row_id: ORDER_LINE
        expect: {users: 500, rows_per_partition: 900, rows: 20000}
        outputs: {files: [csv]}
        tuned: [{stage: weekly, date: "2026-01-05"}]
        stages: {weekly: {kind: aggregate, partition_by: [week], bounds: {max_partitions_contributed: 8}}}
        """,
        """
        dataset: shop
        privacy_unit: {orders: CUSTOMER_ID, visits: USER}
        budget: {epsilon: 1.0, delta: 1.0e-6}
        tables: {orders: {parquet: "orders/*.parquet"}, visits: {parquet: "visits/*.parquet"}}
        join: {left: orders, right: visits, on: [[day, day]], max_rows_per_unit: {orders: 1000, visits: 1000}}
        stages: {pages: {kind: aggregate, partition_by: [PAGE], bounds: {max_partitions_contributed: 8}}}
        """,
        """
        dataset: shop
        privacy_unit: {shops: CUSTOMER_ID, web: USER}
        budget: {epsilon: 1.0, delta: 1.0e-6}
        tables: {shops: {parquet: "shops/*.parquet"}, web: {parquet: "web/*.parquet"}}
        union: [shops, web]
        stages: {goods: {kind: aggregate, partition_by: [PRODUCT], bounds: {max_partitions_contributed: 8}}}
        """,
        """
        dataset: survey
        privacy_unit: {row: true}
        budget: {epsilon: 1.0, delta: 1.0e-6}
        source: {parquet: "answers/*.parquet"}
        stages: {regions: {kind: aggregate, partition_by: [REGION]}}
        """,
        """
        dataset: shops
        privacy_unit: CUSTOMER_ID
        budget: {epsilon: 1.0, delta: 1.0e-6}
        source: {parquet: "data/*.parquet"}
        parties:
          people: disjoint
          members:
            north: {address: "north.example.org:4433"}
            south: {address: "south.example.org:4433"}
            notary: {address: "notary.example.org:4433", rows: false}
        stages:
          sales:
            kind: aggregate
            partition_by: [PRODUCT]
            partitions: {public: [[milk], [bread]]}
            bounds: {max_partitions_contributed: 2, max_contributions_per_partition: 2}
            metrics: {orders: {kind: count}}
        """,
    ),
    "PartiesModel": (
        """
        people: disjoint
        members:
          north: {address: "north.example.org:4433"}
          south: {address: "south.example.org:4433"}
          notary: {address: "notary.example.org:4433", rows: false}
        wait_seconds: 600
        """,
    ),
    "Member": ('{address: "notary.example.org:4433", rows: false}',),
    "JoinModel": (
        "{left: orders, right: visits, on: [[day, visit_day]], kind: left, max_rows_per_unit: {orders: 1000, visits: 500}}",
    ),
    "TableModel": (
        """
        parquet: "orders/*.parquet"
        where: "AMOUNT > 0"
        columns: {day: "CAST(SOLD_AT AS DATE)"}
        lookup: {parquet: stores.parquet, on: STORE}
        """,
        """
        csv: "exports/*.txt"
        types: {customer: string, amount: double, sold: date, paid_at: timestamp, birth: date}
        delimiter: ";"
        quote: "'"
        decimal: ","
        thousands: "."
        nulls: ["", "-"]
        encoding: latin-1
        header: false
        names: [customer, amount, sold, paid_at, birth]
        date_format: "%d.%m.%Y"
        timestamp_format: "%d.%m.%Y %H:%M"
        formats: {birth: "%d %b %Y"}
        """,
        "{parquet: visits, hive: {week: date}, optional: [shop]}",
        '{csv: "orders/*.csv", types: {CUSTOMER_ID: string, AMOUNT: double}, quoted: false}',
        '{jsonl: "visits/*.jsonl", types: {customer: string, day: date}}',
    ),
    "Param": ("{type: date}",),
    "BudgetModel": ("{epsilon: 1.0, delta: 1.0e-6, runs: 52, spare: 2, split: linear}",),
    "SourceModel": (
        '{parquet: "data/*.parquet"}',
        "{parquet: data, hive: {week: date}, optional: [discount]}",
        '{csv: "data/*.csv", types: {CUSTOMER_ID: string, AMOUNT: double}, quoted: false}',
        '{jsonl: "events/*.jsonl", types: {customer: string, amount: double, sold: date}, date_format: "%d.%m.%Y"}',
        """
        csv: "exports/*.txt"
        types: {customer: string, amount: double, sold: date, paid_at: timestamp, birth: date}
        delimiter: ";"
        quote: "'"
        decimal: ","
        thousands: "."
        nulls: ["", "-"]
        encoding: latin-1
        header: false
        names: [customer, amount, sold, paid_at, birth]
        date_format: "%d.%m.%Y"
        timestamp_format: "%d.%m.%Y %H:%M"
        formats: {birth: "%d %b %Y"}
        """,
    ),
    "OutputsModel": ("{files: [csv, jsonl]}", '{files: [{csv: {rounded: true, delimiter: ";", bom: true}}]}'),
    "SpreadsheetFile": ("{csv: {rounded: true, interval: true}}",),
    "SpreadsheetOptions": ('{rounded: true, interval: true, wide: true, delimiter: ";", decimal: ",", bom: true}',),
    "EventWindow": ("{column: SOLD_AT, days: 7, param: week}",),
    "LookupModel": (
        "{parquet: stores.parquet, on: STORE}",
        "{parquet: tags.parquet, on: [STORE, PRODUCT], max_rows_per_key: 5}",
        "{csv: stores.csv, types: {STORE: int64}, on: STORE, quoted: false}",
        f"{CELLS}on: STORE\n",
    ),
    "Expect": (
        "{users: 500, rows_per_partition: 900, totals: {revenue: [50, 120]}}",
        "{rows: 10000000, partitions: 2000, units: 30000, positives: 0.05}",
        "{arms: {A: 3000, B: 300}, totals: {revenue: [50, 120]}}",
    ),
    "TunedModel": ('{stage: weekly, date: "2026-01-05"}',),
    "Stage": (
        """
        kind: aggregate
        share: 0.5
        unit_columns: {line: "row_number() OVER (PARTITION BY day ORDER BY PRODUCT_ID)"}
        where: "line = 1"
        max_rows_per_unit: 1000
        partition_by: [PRODUCT, week]
        partitions: {private: {strategy: gaussian}}
        bounds: {max_partitions_contributed: 16, max_contributions_per_partition: 2}
        metrics: {orders: {kind: count}, buyers: {kind: privacy_id_count}}
        having: "orders > 50"
        order_by: orders desc
        limit: 20
        """,
        """
        kind: aggregate
        partition_by: [PRODUCT]
        bounds: {max_partitions_contributed: 16}
        metrics: {buyers: {kind: privacy_id_count}}
        top: {k: 20, by: buyers}
        kept: {share: 0.02}
        """,
        """
        kind: aggregate
        partition_by: [PRODUCT, week]
        rollup: [[], [PRODUCT], [PRODUCT, week]]
        bounds: {max_partitions_contributed: 16, max_contributions_per_partition: 2}
        metrics: {orders: {kind: count}}
        """,
        """
        kind: aggregate
        partition_by: [PRODUCT]
        partitions: {public_file: products.parquet}
        bounds: {max_partitions_contributed: 16}
        metrics: {buyers: {kind: privacy_id_count}}
        best: {k: 3, by: buyers}
        """,
        """
        kind: aggregate
        partition_by: [arm]
        partitions: {public: [[A], [B]]}
        bounds: {max_partitions_contributed: 1, max_contributions_per_partition: 8}
        metrics: {revenue: {kind: sum, column: PRICE, min_sum_per_partition: 0, max_sum_per_partition: 500}}
        compare: {by: arm, baseline: A, metrics: [revenue]}
        """,
    ),
    "CompareModel": (
        "{by: arm, baseline: A, metrics: [revenue, revenue / orders], share: 0.5}",
        "{by: arm, baseline: A, metrics: [revenue], intervals: noise}",
    ),
    "Bounds": (
        "{max_partitions_contributed: 16, max_contributions_per_partition: 2}",
        "{max_partitions_contributed: auto, partition_candidates: [1, 2, 4, 8], max_contributions_per_partition: 2}",
        "{max_contributions: 40}",
        "{max_partitions_contributed: 4, max_contributions_per_partition: auto, row_candidates: [1, 2, 4, 8]}",
    ),
    "Partitions": (
        "{private: {strategy: auto}}",
        '{public: [[milk, "2026-01-05"], [bread, "2026-01-05"]]}',
        '{public: {product: {PRODUCT: [milk, bread], week: {range: ["2026-01-05", "2026-03-30"], step: 7}}}}',
        "{public_file: products.parquet, other: true}",
        "{public_sorted_file: pages.parquet}",
    ),
    "ProductModel": ("{product: {COUNTRY: [DE, FR], hour: {range: [0, 23]}}}",),
    "RangeModel": ("{range: [0, 95], step: 5}", '{range: ["2026-01-05", "2026-03-30"], step: 7}'),
    "Private": ("{strategy: gaussian, min_users: 20}", "{strategy: truncated_geometric, weight: 2}"),
    "TopPartitions": ("{k: 20, by: buyers}",),
    "BestPartitions": ("{k: 3, by: buyers, mechanism: permute_and_flip}",),
    "RollupModel": ("{levels: [[], [PRODUCT], [PRODUCT, week]], shares: [1, 4, 16]}",),
    "KeptModel": ("{share: 0.02, up_to: 4096, each_metric: true}",),
    "BoundByPartition": ("{lookup: MAX_PRICE, default: 1000}",),
    "CountMetric": ("{kind: count, weight: 2}", "{kind: count, stddev: 40}"),
    "RatioMetric": ("{kind: ratio, of: revenue, to: orders}", "{kind: ratio, of: orders, to: {total: orders}}"),
    "TotalOf": ("{total: orders}",),
    "ExpressionMetric": ('{kind: expression, of: "100 * (revenue - cost) / revenue"}',),
    "PrivacyIdCountMetric": ("{kind: privacy_id_count, weight: 2}", "{kind: privacy_id_count, stddev: 10}"),
    "DistinctCountMetric": (
        "{kind: distinct_count, column: PRODUCT_ID, max_values_per_partition: 4, weight: 2}",
        "{kind: distinct_count, column: PRODUCT_ID, stddev: 10}",
    ),
    "SumMetric": (
        "{kind: sum, column: PRICE, min_value: 0, max_value: 1000, weight: 2}",
        "{kind: sum, column: PRICE, min_value: 0, max_value: auto, within: [0, 100000]}",
        "{kind: sum, column: PRICE, min_sum_per_partition: 0, max_sum_per_partition: 3000, stddev: 500}",
    ),
    "MeanMetric": (
        "{kind: mean, column: PRICE, min_value: 0, max_value: 1000, nullable: false, shrink: true, weight: 2}",
        "{kind: mean, column: PRICE, min_value: 0, max_value: auto, within: [0, 100000]}",
        "{kind: mean, column: HOURS, min_value: 0, max_value: 12, weight_column: WEIGHT, max_weight: 4}",
    ),
    "GeometricMeanMetric": (
        "{kind: geometric_mean, column: PRICE, min_value: 0.01, max_value: 1000, nullable: false, weight: 2}",
    ),
    "VarianceMetric": (
        "{kind: variance, column: PRICE, min_value: 0, max_value: 1000, nullable: false, weight: 2}",
        "{kind: variance, column: PRICE, min_value: 0, max_value: auto, within: [0, 100000]}",
    ),
    "MedianMetric": ("{kind: median, column: PRICE, min_value: 0, max_value: 1000, weight: 2}",),
    "MinMetric": ("{kind: min, column: PRICE, min_value: 0, max_value: 1000, weight: 2}",),
    "MaxMetric": ("{kind: max, column: PRICE, min_value: 0, max_value: 1000, weight: 2}",),
    "QuantilesMetric": (
        "{kind: quantiles, column: PRICE, quantiles: [0.1, 0.5, 0.9], min_value: 0, max_value: 1000, weight: 2}",
    ),
    "QuantileMetric": (
        "{kind: quantile, column: PRICE, quantile: 0.5, candidates: [1, 2, 5, 10, 20, 50], method: tree, weight: 2}",
    ),
    "HistogramMetric": (
        "{kind: histogram, column: PRICE, edges: [0, 10, 50, 200, 1000], weight: 2}",
        "{kind: histogram, column: PAID_BY, categories: [cash, card]}",
    ),
    "VectorSumMetric": ("{kind: vector_sum, column: EMBEDDING, size: 16, norm: l2, max_norm: 1.0, weight: 2}",),
    "SecondMomentMetric": (
        "{kind: second_moments, columns: [PRICE, AMOUNT], bounds: {PRICE: [0, 1000], AMOUNT: [0, 20]}, weight: 2}",
        "{kind: second_moments, columns: [PRICE, AMOUNT], max_norm: 1000}",
    ),
    "TrainStage": (
        """
        kind: train
        share: 2
        unit_columns: {last_day: "max(day) OVER ()"}
        where: "day <= 105"
        max_rows_per_unit: 1000
        max_examples_per_unit: 16
        label: {kind: binary, column: returns}
        features:
          weekday: {kind: category, categories: [1, 2, 3, 4, 5, 6, 7]}
          price: {kind: number, min_value: 0, max_value: 300}
        pairs: [[weekday, price]]
        model: {kind: mlp, hidden: [32]}
        fit: {steps: 60, sampling_rate: 0.2}
        whiten: false
        held_out: 0.1
        evaluation: {cells: 32}
        """,
    ),
    "PateStage": (
        """
        kind: pate
        share: 2
        public: {parquet: unlabelled.parquet}
        unit_columns: {last_day: "max(day) OVER ()"}
        where: "day <= 105"
        max_rows_per_unit: 1000
        max_examples_per_unit: 16
        label: {kind: binary, column: returns}
        features:
          weekday: {kind: category, categories: [1, 2, 3, 4, 5, 6, 7]}
          price: {kind: number, min_value: 0, max_value: 300}
        pairs: [[weekday, price]]
        model: {kind: linear}
        fit: {teachers: 500, answers: 100}
        whiten: false
        held_out: 0.1
        evaluation: {cells: 32}
        """,
    ),
    "TeachersModel": ("{teachers: 1000, answers: 200, asked: 500, threshold: 650, steps: 5, learning_rate: 2}",),
    "PublicModel": ("{parquet: rows.parquet}", "{csv: rows.csv, types: {price: double}, quoted: false}", CELLS),
    "FederateStage": (
        """
        kind: federate
        share: 2
        expected_clients: 30000
        unit_columns: {last_day: "max(day) OVER ()"}
        where: "day <= 105"
        max_rows_per_unit: 1000
        max_examples_per_unit: 16
        label: {kind: binary, column: returns}
        features:
          weekday: {kind: category, categories: [1, 2, 3, 4, 5, 6, 7]}
          price: {kind: number, min_value: 0, max_value: 300}
        pairs: [[weekday, price]]
        model: {kind: linear}
        fit: {rounds: 40, local_epochs: 2}
        whiten: false
        held_out: 0.1
        evaluation: {cells: 32}
        """,
    ),
    "RoundsModel": (
        """
        {rounds: 60, method: fedavg, local_epochs: 2, local_examples: 8, local_rate: 0.1, clip_norm: 1.0, learning_rate: 1.0,
         sampling_rate: 0.2, participation: visible, momentum: 0.9, average: 0.5, schedule: exponential,
         max_noise_multiplier: 300}
        """,
        "{rounds: 40, method: fedsgd}",
        "{rounds: 40, separation: 10, noise: correlated}",
    ),
    "BinaryTarget": ("{kind: binary, column: returns}",),
    "ClassTarget": ("{kind: classes, column: next_shop, classes: [north, south]}",),
    "NumberTarget": ("{kind: number, column: spent, min_value: 0, max_value: 500}",),
    "NumberFeature": (
        "{kind: number, column: PRICE, min_value: 0, max_value: 1000, bins: 20, scaled: true}",
        "{kind: number, min_value: 0, max_value: 1000, edges: [10, 50, 200]}",
    ),
    "CategoryFeature": ("{kind: category, column: SHOP, categories: [north, south]}", "{kind: category, most: 50}"),
    "Linear": ("{kind: linear}",),
    "Network": ("{kind: mlp, hidden: [64, 32]}",),
    "Jax": ('{kind: jax, name: "my_models:net", parameters: 161, microbatch: 16}',),
    "FitModel": (
        """
        {steps: 60, sampling_rate: 0.2, clip_norm: 1.5, learning_rate: 0.5, momentum: 0.9, average: 0.25,
         max_noise_multiplier: 100, l2: 0.01, class_weights: [1, 20]}
        """,
        "{candidates: [{learning_rate: 1}, {learning_rate: 4, steps: 20}, {learning_rate: 4, steps: 40}]}",
    ),
    "CandidateModel": ("{steps: 20, clip_norm: 1.5, learning_rate: 4, momentum: 0.9, average: 0.25}",),
    "GroupsModel": ("{column: region, groups: [north, south]}",),
    "EvaluationModel": (
        "{cells: 32, weighting: examples, max_examples_per_unit: 4, by: {column: region, groups: [north, south]}}",
    ),
}
"""By the name of a model, parts that it takes, in YAML. Those of extensions come from their keys (`extension_keys`)."""


for _name, _texts in PARTS.items():  # what all metrics, and a job and all of its stages, may say to readers
    if _name.endswith("Metric"):
        PARTS[_name] = (
            *_texts,
            f"{_texts[0].strip().removesuffix('}')}, label: Revenue, measure: EUR, format: ',.2f'}}",
        )
    if _name == "Job" or _name.endswith("Stage"):
        _words = "title: Orders of the shop\ndescription: Without the web shop.\n"
        _words += "format: ',.0f'\n" if _name in ("Job", "Stage") else ""
        PARTS[_name] = (*_texts, textwrap.dedent(_texts[0]) + _words)


def add(parts: Mapping[str, tuple[str, ...]]) -> None:
    """Add parts that models take because of an extension.

    Args:
        parts: by the name of a model.
    """
    for model, texts in parts.items():
        PARTS[model] = (*PARTS.get(model, ()), *texts)


def of_part(model: str) -> list[Any]:
    """What the example parts of a model hold; none, where it has none.

    >>> of_part("CountMetric")[:2]
    [{'kind': 'count', 'weight': 2}, {'kind': 'count', 'stddev': 40}]
    """
    return [yaml_lines.parse(text, f"an example of {model}").data for text in PARTS.get(model, ())]


def of_keys(model: str) -> dict[str, Any]:
    """What each key holds in the first part that has it.

    >>> of_keys("CountMetric")["stddev"]
    40
    """
    found: dict[str, Any] = {}
    for part in of_part(model):
        for key, held in part.items():
            found.setdefault(key, held)
    return found


def into_schema(schema: dict[str, Any], model: type) -> None:
    """Add its examples to the JSON schema of a model (`json_schema_extra` of pydantic)."""
    into_schema_of(schema, model.__name__)


def into_schema_of(schema: dict[str, Any], name: str) -> None:
    """Add the examples of a part to its JSON schema.

    Args:
        schema: gets them; the schemas of keys are replaced, not changed.
        name: of the part's model.
    """
    if parts := of_part(name):
        schema["examples"] = parts
    for key, held in of_keys(name).items():
        if key in schema.get("properties", {}):
            schema["properties"][key] = {**schema["properties"][key], "examples": [held]}
