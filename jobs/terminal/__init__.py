"""Terminal output: results, progress, and silence while rows are in memory."""
