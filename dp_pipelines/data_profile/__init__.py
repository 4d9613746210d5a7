"""What the rows of a job are like: nulls, matches, groups by size, what bounds keep. NOT private: for who may see raw rows."""
