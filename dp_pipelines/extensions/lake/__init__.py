"""Tables of data lakes: Delta, Iceberg, Avro and BigQuery as sources, Delta as an output."""
