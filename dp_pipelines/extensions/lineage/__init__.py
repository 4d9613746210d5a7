"""OpenLineage events of runs: `dp-pipelines run --lineage FILE`."""
