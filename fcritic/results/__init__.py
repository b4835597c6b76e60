"""Results from metrics: reading, statistics and plots."""
