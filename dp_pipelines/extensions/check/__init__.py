"""`dp-pipelines check`: what the rows of a job are like, on a private page."""
