"""Predicts the errors under other bounds, clips, budgets and strategies from the raw rows: NOT private.

In: configurations of a stage, raw rows. Out: predicted errors, a recommendation, a page. Holds: nothing here charges a budget.
Not covered: privacy; everything stays in a private folder.
"""
