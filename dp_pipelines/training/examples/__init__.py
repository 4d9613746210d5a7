"""Examples on disk, and which stage may read which of them."""
