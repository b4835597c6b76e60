"""`fcritic explore`: claims about exploration, judged on small tasks with known answers."""

from fcritic.cli.experiment import run_group


def explore(args: list[str]) -> int:
    """`fcritic explore NAME` runs a study of exploration; without a name it lists them."""
    return run_group(
        "exploration", "explore", "Judges claims about exploration on small tasks with known answers.", args
    )
