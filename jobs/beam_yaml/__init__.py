"""The way in from Beam YAML and from other languages."""
