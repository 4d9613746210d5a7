"""What becomes of one table, and how tables flow from step to step, for every engine alike: nothing here imports Beam."""
