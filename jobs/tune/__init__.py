"""`dp-pipelines tune`: other bounds, clips, budgets and strategies, from one pass over the rows."""
