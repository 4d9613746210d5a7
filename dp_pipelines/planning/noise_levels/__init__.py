"""How large the noise of each statistic is: found for a budget, or given, in integers; and what passes by it alone."""
