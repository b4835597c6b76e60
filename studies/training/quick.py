"""Does the machinery work? A functional and a plain agent on a probe, in seconds on a CPU."""

from fcritic.study.comparison import Comparison
from fcritic.study.spec import Run

_OFTEN = (("warmup", 200), ("eval_every", 500), ("save_every", 500), ("log_every", 250), ("agent.batch_size", 16))
_PLAIN = (*_OFTEN, ("agent.actor_hidden", (8,)), ("agent.critic_hidden", (8,)))
_LAYERS = tuple((f"agent.{part}_hidden", (8,)) for part in ("actor", "state_action", "joint"))
_ENCODER = tuple(
    (f"agent.encoder.{name}", value) for name, value in (("probes", 4), ("depth", 1), ("width", 8), ("code", 4))
)
_FUNCTIONAL = (*_OFTEN, ("agent.members", 2), *_LAYERS, *_ENCODER)

STUDY = Comparison(
    "quick",
    "Does the machinery work? A functional and a plain agent on a probe, in seconds on a CPU.",
    (
        Run("td3", "probe-both", envs=1, seeds=3, steps=1500, options=_PLAIN),
        Run("fac-small", "probe-both", envs=1, seeds=3, steps=1500, options=_FUNCTIONAL),
    ),
    reference="td3",
)
