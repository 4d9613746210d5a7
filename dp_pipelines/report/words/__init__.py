"""The sentences of the report: names of units, headline numbers, what limits cut off, what a chart shows."""
