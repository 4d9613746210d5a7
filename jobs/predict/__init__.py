"""`dp-pipelines predict`: apply a published model to new rows."""
