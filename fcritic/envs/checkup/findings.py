"""What a check says: findings of three levels, each with what, where and what to do."""

import dataclasses
from typing import Any, Literal

Level = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that was noticed."""

    level: Level
    """`error`: training fails or learns nonsense; `warning`: probably not what you want; `note`: good to know."""
    name: str
    """Short and fixed, for programs."""
    what: str
    where: str = ""
    """The step, the field, the space."""
    advice: str = ""
    """What to do."""

    def text(self) -> str:
        """For a person."""
        where = f" ({self.where})" if self.where else ""
        advice = f"\n         -> {self.advice}" if self.advice else ""
        return f"{self.level:<8} {self.what}{where}{advice}"


@dataclasses.dataclass(frozen=True)
class Report:
    """All that a check found."""

    task: str
    findings: list[Finding]
    facts: dict[str, Any]
    """Sizes, steps taken, steps per second."""

    @property
    def healthy(self) -> bool:
        """Whether training can work: there are no errors."""
        return not self.named("error")

    def named(self, level: Level) -> list[str]:
        """The names of the findings of one level."""
        return [finding.name for finding in self.findings if finding.level == level]

    def to_json(self) -> dict[str, Any]:
        """For a program."""
        findings = [dataclasses.asdict(finding) for finding in self.findings]
        return {"task": self.task, "healthy": self.healthy, "findings": findings, "facts": self.facts}

    def __str__(self) -> str:
        ordered = sorted(self.findings, key=lambda finding: LEVELS.index(finding.level))
        counts = [_count(len(self.named(level)), level) for level in LEVELS]
        verdict = "it can be trained on" if self.healthy else "mend the errors before training"
        return "\n".join([*(finding.text() for finding in ordered), f"{self.task}: {', '.join(counts)}; {verdict}"])


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"
