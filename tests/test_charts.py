"""Pictures of a report: every line can be told from the others, and its name can be read."""

import re

import numpy as np

from fcritic.experiments import charts
from fcritic.experiments.appearance import COLOURS, DASHES, line_of, short_frames
from fcritic.experiments.gather import Method, Panel
from fcritic.experiments.spec import Run


def panel(*names: str) -> Panel:
    """A panel with a method of each name, all on lines of their own."""
    methods = [
        Method(
            Run("sac", "cheetah-run", label=name), np.array([100, 200]), np.array([[place, 2.0 * place]]), {}, place
        )
        for place, name in enumerate(names)
    ]
    return Panel("cheetah-run", methods, [], [])


def test_lines_differ_beyond_the_number_of_colours():
    count = len(COLOURS) * len(DASHES)
    assert len({line_of(place) for place in range(count)}) == count
    drawn = charts.curves(panel(*(f"method {number}" for number in range(len(COLOURS) + 1))))
    assert drawn.count("stroke-dasharray") == 1


def test_short_names_stand_at_their_lines_and_long_ones_below():
    short = panel("sac", "td3")
    assert ">sac</text>" in charts.curves(short) and charts.legend(short) == ""
    long = panel("sac", "a name that is much too long <for> the margin")
    drawn, below = charts.curves(long), charts.legend(long)
    assert "margin" not in drawn and re.findall(r">(\d)</text>", drawn)[-2:] in (["1", "2"], ["2", "1"])
    assert " 2 a name that is much too long &lt;for&gt; the margin</li>" in below and " 1 sac</li>" in below


def test_frames_on_an_axis_are_short():
    assert [short_frames(frame) for frame in (0, 500, 20_000, 1_500_000)] == ["0", "500", "20k", "1.5M"]
