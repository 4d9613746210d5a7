"""What a release is published as, beside Parquet: text files in its folder, and tables that extensions publish elsewhere."""
