"""SELECT statements in place of stages: in job files, in notebooks, and as the command `sql`."""
