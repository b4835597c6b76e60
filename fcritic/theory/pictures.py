"""Pictures of the theory's experiments. Besides `fcritic.results.plots`, matplotlib is imported nowhere else."""

from collections.abc import Iterator
import contextlib
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no display is ever needed

from matplotlib import pyplot as plt

from fcritic.errors import cannot_write


@contextlib.contextmanager
def panels(
    path: Path, count: int = 1, title: str = "", width: float = 4.6, rows: int = 1
) -> Iterator[list[plt.Axes]]:
    """Axes side by side in one picture, `count` in each row, which is written to `path` at the end."""
    size = (max(width * count, 6), 4.4 * rows)
    figure, axes = plt.subplots(rows, count, figsize=size, layout="constrained", squeeze=False)
    try:
        yield list(axes.flat)
        for each in axes.flat:
            each.grid(alpha=0.25)
            each.spines[["top", "right"]].set_visible(False)
        if title:
            figure.suptitle(title, fontsize=11)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise cannot_write("the picture", path, error) from error
    finally:
        plt.close(figure)
