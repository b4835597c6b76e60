"""What the numbers of a functional actor-critic may be."""

from typing import TYPE_CHECKING

from fcritic.errors import UsageError, require_at_least

if TYPE_CHECKING:
    from fcritic.agents.fac import FAC


def require_sensible(agent: "FAC") -> None:
    """Refuses numbers that make no agent, by their options' names."""
    require_at_least(1, members=agent.members, critics=agent.critic_count, rollout_actors=agent.collectors)
    if agent.collectors > agent.members:
        raise UsageError(f"--rollout-actors must be at most the members, {agent.members}, not {agent.collectors}")
    require_at_least(1, state_action_code=agent.state_action_code)
    for name in ("actor_hidden", "state_action_hidden", "joint_hidden"):
        require_at_least(1, **{name: min(getattr(agent, name), default=1)})
    require_at_least(0, learning_rate=agent.learning_rate, encoder_learning_rate=agent.encoder_rate)
    require_at_least(0, prior_scale=agent.prior_scale, action_noise=agent.action_noise)
    require_at_least(0, exploration_noise=agent.exploration_noise)
    if not 0 <= agent.exploration_memory < 1:
        raise UsageError(f"--exploration-memory must be in [0, 1), not {agent.exploration_memory:g}")
    if agent.actor_reach is not None and not agent.actor_reach > 0:
        raise UsageError(f"--actor-reach must be above 0, not {agent.actor_reach:g}")
    if not 0 < agent.mask_probability <= 1:
        raise UsageError(f"--mask-probability must be in (0, 1], not {agent.mask_probability:g}")
    if not 0 <= agent.tau <= 1:
        raise UsageError(f"--tau must be in [0, 1], not {agent.tau:g}")
    layers = len(agent.actor_hidden) + 1
    if outside := [layer for layer in agent.encoder.layers if not -layers <= layer < layers]:
        raise UsageError(f"--encoder.layers names layer {outside[0]}, but actors have {layers} layers")
    _require_partners(agent)


def _require_partners(agent: "FAC") -> None:
    """Who learns from whom must be possible."""
    alone = (agent.pairing, agent.neighbours, agent.targets) == ("fixed", "none", "own")
    if not agent.functional and not alone:
        raise UsageError(
            "plain critics know only their own actor; leave --pairing, --targets and --neighbours alone"
        )
    if agent.critic_count != agent.members and agent.pairing != "mean":
        raise UsageError("--critics that are not as many as --members have no pairs; use --pairing mean")
