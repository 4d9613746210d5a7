"""The page of a privacy impact assessment."""
