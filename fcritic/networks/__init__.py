"""Networks: mathematics only, as modules whose leaves are all arrays."""
