"""Where rows come from: files, tables in memory, looked up columns, windows of event time."""
