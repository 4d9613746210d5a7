"""From totals to what is visible: the draw of a release, its private staging, its manifest and its publication. Knows no Beam."""
