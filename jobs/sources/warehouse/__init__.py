"""Tables of BigQuery, by its Storage API."""
