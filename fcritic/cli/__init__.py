"""The command line: `fcritic COMMAND ...`. Every command is one dataclass of options and one function."""
