#!/bin/bash
# One night: dbt prepares the rows of a day, dp-pipelines releases them, dbt reads the release, Prometheus gets the budgets.
#
#   ./nightly.sh [DAY]        DAY is yesterday (UTC) by default; the same day again gives the same release and costs nothing
#
# Exit codes: 0 done; 1 failed, the same command may be tried again; 2 the request is wrong; 3 the budget refuses. After 2 and 3 no
# retry helps: tell somebody.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
day=${1:-$(date -u -I -d yesterday)}

dbt_models() {
  command -v dbt >/dev/null || { echo "nightly: no dbt; $1 is left out" >&2; return 0; }
  dbt run --quiet --project-dir dbt --profiles-dir dbt --select "$1" --vars "{day: '$day'}"
}

mkdir -p rows lineage metrics
dbt_models before || exit 1
dp-pipelines run nightly.yaml --param "day=$day" --run-id 'night-{day}' --output 'out/{day}' --latest out/latest \
  --lineage 'lineage/{day}.jsonl'
code=$?
# After a refusal too: that is when somebody looks.
python budgets.py --ledger dp-ledger.sqlite --output metrics/dp_pipelines.prom || [ "$code" -ne 0 ] || code=1
[ "$code" -eq 0 ] || exit "$code"
dbt_models after || exit 1
