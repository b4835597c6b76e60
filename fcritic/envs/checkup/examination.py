"""The whole check: declared spaces, a walk of random actions, and whether it repeats."""

from collections.abc import Iterator
from typing import Any

import gymnasium

from fcritic.envs.checkup.findings import Finding, Report
from fcritic.envs.checkup.judging import judge_walk
from fcritic.envs.checkup.repeats import judge_repeats
from fcritic.envs.checkup.spaces import judge_spaces
from fcritic.envs.checkup.subject import Plain, Subject
from fcritic.envs.checkup.walk import Walk, Walker
from fcritic.envs.gym import find_time_limit
from fcritic.envs.own import Task, name_of, told
from fcritic.envs.watch import LONGEST, Hang
from fcritic.errors import UsageError, require_at_least


def check(task: Task, steps: int = 1000, timeout: float = 60.0) -> Report:
    """Looks for what is wrong with an environment: its spaces, its answers, its episodes, whether it repeats.

    `task` is what `fcritic train --task` takes, or a callable that builds the environment. `steps` random actions
    are taken, in at most 20 s; a call that takes longer than `timeout` seconds is an error.
    """
    require_at_least(10, steps=steps)
    require_at_least(0.1, env_timeout=timeout)
    if timeout > LONGEST:
        raise UsageError(f"--env-timeout must be at most {LONGEST:,g}, not {timeout:g}")
    name = name_of(task)
    subject, facts = Subject(name, timeout), {}
    try:
        env = subject.build()
    except UsageError:
        raise
    except (Exception, SystemExit, Hang) as error:
        return Report(name, [Finding("error", "build", f"it cannot be built: {told(error)}")], facts)
    try:
        findings = list(judge_spaces(env))
        if not any(finding.level == "error" for finding in findings):
            findings += _examine(subject, env, steps, facts)
    finally:
        env.close()
    return Report(name, findings, facts)


def _examine(subject: Subject, env: gymnasium.Env, steps: int, facts: dict[str, Any]) -> Iterator[Finding]:
    walker = Walker(subject, env)
    sound = walker.go(steps)
    yield from walker.findings
    facts |= _facts(walker, walker.walk)
    if not sound or any(finding.level == "error" for finding in walker.findings):
        return
    limit = find_time_limit(env)
    yield from judge_walk(walker.walk, None if limit is None else limit._max_episode_steps)
    try:
        yield from judge_repeats(subject, walker)
    except (Exception, SystemExit, Hang) as error:
        yield Finding("error", "raises", f"another copy raised {told(error)}", "when it was repeated")
    yield from _geometry(env)


def _facts(walker: Walker, walk: Walk) -> dict[str, Any]:
    seconds = walk.stepping + walk.resetting
    return {
        "obs_dim": walker.spec.obs_dim,
        "act_dim": walker.spec.act_dim,
        "steps": walk.steps,
        "episodes": len(walk.endings),
        "steps_per_second": round(walk.steps / seconds, 1) if walk.steps else 0.0,
        "reward_range": [min(walk.rewards), max(walk.rewards)] if walk.rewards else None,
    }


def _geometry(env: gymnasium.Env) -> Iterator[Finding]:
    """Whether there is a MuJoCo model to be drawn."""
    inner = env.inner if isinstance(env, Plain) else env.unwrapped
    physics = getattr(getattr(inner, "_env", None), "physics", None)
    model = getattr(inner, "model", getattr(physics, "model", None))
    if all(hasattr(model, name) for name in ("nbody", "ngeom", "nq")):
        what = (
            f"a MuJoCo model: {model.nbody - 1} bodies, {model.ngeom} geometries, so episodes can be drawn in 3-D"
        )
        yield Finding("note", "mujoco", what, "model")
