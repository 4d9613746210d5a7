"""From totals to what is visible: the draw of a release, its private staging, its manifest and its publication.

May import errors, checks, frozen, noise, kernels, metrics, query, selection and budget. Knows no Beam.
"""
