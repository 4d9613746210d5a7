"""Made-up rows: tables with the columns of a job and values that nobody has measured, and the report of a job of such rows."""
