"""Columns that look at all rows of one privacy unit: windows in SQL, computed exactly and for each unit alone."""
