"""The paper's main figure with 2 environments, to 500,000 frames."""

from studies.training.figure_2.figure_2 import figure

STUDY = figure("figure-2-two-envs", 2, 500_000)
