"""What is wrong with an environment, in words, before hours are spent on it."""

from fcritic.envs.checkup.examination import check
from fcritic.envs.checkup.findings import Finding, Report

__all__ = ["Finding", "Report", "check"]
