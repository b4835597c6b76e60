"""The paper's main figure with 4 environments, to 1,000,000 frames."""

from studies.training.figure_2.figure_2 import figure

STUDY = figure("figure-2-million", 4, 1_000_000)
