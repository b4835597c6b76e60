"""`fcritic theory`: statements of the paper, judged on problems that can be solved exactly."""

from fcritic.cli.experiment import run_group


def theory(args: list[str]) -> int:
    """`fcritic theory NAME` runs a study of the theory; without a name it lists them."""
    return run_group(
        "theory", "theory", "Judges statements of the paper on problems that can be solved exactly.", args
    )
