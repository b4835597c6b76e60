"""How far the data of a run reach its actors, as the training itself would measure it now."""

import math
from typing import Any

from fcritic.agents.fac import FAC
from fcritic.api.load import TrainedAgent
from fcritic.runs.directory import RunDirectory
from fcritic.training.behaviour import trust
from fcritic.training.saving import Checkpoints, learning_of


def of_actors(agent: TrainedAgent) -> dict[str, Any] | None:
    """Returns C over its least, what lies outside of the data, and Delta of every actor; None without a replay."""
    directory, options = RunDirectory.open_existing(agent.directory), agent.config.agent
    if directory.is_exported() or not isinstance(options, FAC):
        return None
    learning = learning_of(agent.config, agent.spec)
    found = Checkpoints(directory, agent.config, learning).load()[0]
    if found is None or not int(found.snapshot.state.replay.written):
        return None
    measured = trust(learning, found.snapshot.state, agent.frame)
    place = agent.config.seed_numbers.index(agent.seed)
    finite = lambda values: [value if math.isfinite(value) else None for value in values.tolist()]
    each = {
        name: finite(measured[f"{name}_by_actor"][place]) for name in ("trust", "outside", "drift", "drift_printed")
    }
    return each | {"rows": options.trust.rows, "states": options.trust.states}
