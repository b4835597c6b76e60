"""The package from Python: load, train, value and export agents."""
