"""Where rows come from: files, tables in memory, lookup columns, windows of event time."""
