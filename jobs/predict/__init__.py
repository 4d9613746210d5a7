"""`dp-pipelines predict`: what a published model says of new rows."""
