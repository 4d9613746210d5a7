"""How a statistic is released: each mechanism states its record, draws, and says what it is called, in one file."""
