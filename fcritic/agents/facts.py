"""What a functional actor-critic tells of itself: the numbers of the paper's table, its parts, cheaper variants."""

import dataclasses
from typing import TYPE_CHECKING, Any

import jax

from fcritic import ensembles
from fcritic.types import EnvSpec

if TYPE_CHECKING:
    from fcritic.agents.fac import FAC, FACState


def table_of(agent: "FAC", spec: EnvSpec) -> dict[str, Any]:
    """Every row of Table `tab:hyperparams`, and what the text adds to it."""
    names = (
        "learning_rate batch_size discount tau critic_steps cycles actor_hidden state_action_hidden "
        "state_action_code joint_hidden layer_norm functional second_term pairing targets neighbours "
        "action_noise actor_reach prior_scale mask_probability"
    )
    return {
        "critics": agent.critic_count,
        "actors": agent.members,
        "optimizer": "adam",
        "activation": "relu",
        "encoder_learning_rate": agent.encoder_rate,
        **{name: getattr(agent, name) for name in names.split()},
        **(agent.encoder.describe((*agent.actor_hidden, spec.act_dim)) if agent.functional else {}),
    }


def parts_of(agent: "FAC", state: "FACState") -> dict[str, Any]:
    """One member of each part, and all members."""
    one = lambda tree: jax.eval_shape(lambda t: ensembles.member(t, 0), tree)
    critics = state.critics.params
    encoder = critics.encoder if agent.shared_encoder else one(critics.encoder)
    return {
        "one_actor": one(state.actors.params),
        "one_actor_encoder": encoder,
        "one_state_action_encoder": one(critics.head.state_action),
        "one_joint_encoder": one(critics.head.joint),
        "all_actors": state.actors.params,
        "all_critics": critics,
        "all_targets": state.targets,
        **({} if state.priors is None else {"all_priors": state.priors}),
    }


def cheaper_than(agent: "FAC") -> dict[str, "FAC"]:
    """Variants that cost less, by the options that make them."""
    replace = dataclasses.replace
    encoder = lambda **changes: replace(agent, encoder=replace(agent.encoder, **changes))
    variants = {"--members 4": replace(agent, members=min(4, agent.members))}
    if agent.functional and not agent.encoder.shared:
        variants["--encoder.shared"] = encoder(shared=True)
    if agent.functional and agent.encoder.depth > 1:
        variants["--encoder.depth 1"] = encoder(depth=1)
    return variants
