"""Votes of teachers: what they learn from, how they are trained and asked, and the student who learns their answers."""
