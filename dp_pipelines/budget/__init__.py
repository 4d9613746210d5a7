"""The budget: mechanism records, what they cost together, and the least noise that meets (epsilon, delta)."""
