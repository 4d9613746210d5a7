"""The query in dp_pipelines with five quantiles of the value beside its four metrics; in and out as ours_local.py."""

import ours_local
import workload

FIVE = {
    "kind": "quantiles",
    "column": "value",
    "quantiles": [0.1, 0.25, 0.5, 0.75, 0.9],
    "min_value": workload.LOW,
    "max_value": workload.HIGH,
}

if __name__ == "__main__":
    ours_local.main(quantiles=FIVE)
