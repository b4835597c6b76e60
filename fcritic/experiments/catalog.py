"""The experiments: the paper's figures, the ablations that it lacks, and a small one that anybody can run."""

from fcritic.errors import UsageError, did_you_mean
from fcritic.experiments.laptop import LAPTOP
from fcritic.experiments.noise import HOPPER, NOISE
from fcritic.experiments.shallow import ABLATIONS, OWN_DATA, REMEDIES
from fcritic.experiments.spec import Claim, Experiment, Run

TASKS = ("cheetah-run", "hopper-hop")
METHODS = ("fac-shared", "fac", "sac+", "td3+")

_QUICK = (("warmup", 200), ("eval_every", 500), ("save_every", 500), ("log_every", 250), ("agent.batch_size", 16))
_SMALL = (*_QUICK, ("agent.actor_hidden", (8,)), ("agent.critic_hidden", (8,)))
_LAYERS = tuple((f"agent.{part}_hidden", (8,)) for part in ("actor", "state_action", "joint"))
_ENCODER = tuple(
    (f"agent.encoder.{name}", value) for name, value in (("probes", 4), ("depth", 1), ("width", 8), ("code", 4))
)
_TINY = (*_QUICK, ("agent.members", 2), *_LAYERS, *_ENCODER)


def _figure(name: str, envs: int, steps: int) -> Experiment:
    runs = tuple(Run(method, task, envs=envs, steps=steps) for task in TASKS for method in METHODS)
    return Experiment(
        name,
        f"Figure `fig:exp_dmc` with {envs} environments, to {steps:,} frames",
        runs,
        reference="sac+",
        claims=tuple(
            Claim(f"{ours} is better than {theirs}", ours, theirs)
            for ours in ("fac", "fac-shared")
            for theirs in ("sac+", "td3+")
        ),
    )


def _ablation(name: str, purpose: str, *changes: tuple[str, tuple[tuple[str, object], ...]]) -> Experiment:
    """Variants of `fac-shared` on cheetah-run beside it."""
    base = Run("fac-shared", "cheetah-run", steps=200_000)
    variants = [
        Run("fac-shared", "cheetah-run", steps=200_000, label=label, options=options) for label, options in changes
    ]
    return Experiment(name, purpose, (base, *variants), reference="fac-shared")


_THREE_ROUNDS, _MEAN, _FIVE = ("agent.cycles", 3), ("agent.pairing", "mean"), ("agent.members", 5)
_BEST = (_THREE_ROUNDS, _FIVE, _MEAN)
_CROWD = (_THREE_ROUNDS, _MEAN, ("agent.members", 2))


def _improvements() -> Experiment:
    """What was tried to make the agent better than `sac+`, beside both."""
    given = (Run("fac-shared", "cheetah-run", steps=200_000), Run("sac+", "cheetah-run", steps=200_000))
    changes = (
        ("G = 10", (("agent.critic_steps", 10),)),
        ("3 rounds", (_THREE_ROUNDS,)),
        ("3 rounds, mean of critics", (_THREE_ROUNDS, _MEAN)),
        ("3 rounds, n = 5", (_THREE_ROUNDS, _FIVE)),
        ("3 rounds, n = 5, mean of critics", _BEST),
        ("3 rounds, 2 actors, 10 critics, mean of critics", (*_CROWD, ("agent.critics", 10))),
        ("3 rounds, 64 probes", (_THREE_ROUNDS, ("agent.encoder.probes", 64))),
        (
            "3 rounds, wide start, first term",
            (_THREE_ROUNDS, ("agent.actor_last_scale", 0.3), ("agent.second_term", 0.0)),
        ),
    )
    tried = tuple(
        Run("fac-shared", "cheetah-run", steps=200_000, label=label, options=options) for label, options in changes
    )
    return Experiment("improve", "can the agent be made better than sac+?", (*given, *tried), reference="sac+")


_EXPERIMENTS = [
    Experiment(
        "quick",
        "a functional and a plain agent on a probe, in seconds on a CPU: does the machinery work?",
        (
            Run("td3", "probe-both", envs=1, seeds=3, steps=1500, options=_SMALL),
            Run("fac-small", "probe-both", envs=1, seeds=3, steps=1500, options=_TINY),
        ),
        reference="td3",
    ),
    _figure("figure-2", 4, 500_000),
    _figure("figure-2-million", 4, 1_000_000),
    _figure("figure-2-two-envs", 2, 500_000),
    Experiment(
        "figure-3",
        "Figure `fig:exp_sac_ablate`: what the heuristics bring to the baseline",
        tuple(Run(method, task, steps=500_000) for task in TASKS for method in ("sac+", "sac")),
        reference="sac",
        claims=(Claim("sac+ is better than sac", "sac+", "sac"),),
    ),
    _ablation(
        "critic-input",
        "is it the policy as an input, or the ten actors? And the second gradient term?",
        ("plain critics", (("agent.functional", False),)),
        ("without the second term", (("agent.second_term", 0.0),)),
        ("mean of critics", (("agent.pairing", "mean"),)),
    ),
    _ablation(
        "encoder",
        "what the encoder of policies needs",
        ("own encoders", (("agent.encoder.shared", False),)),
        ("probe tokens", (("agent.encoder.tokens", "probes"),)),
        ("frozen probes", (("agent.encoder.train_probes", False),)),
    ),
    _ablation(
        "members",
        "how many actors and critics",
        *((f"n = {count}", (("agent.members", count),)) for count in (1, 2, 5)),
    ),
    _ablation(
        "ratio",
        "critic updates per actor update: the paper says that 2 or 3 suffice and 1 is unstable",
        *((f"G = {ratio}", (("agent.critic_steps", ratio),)) for ratio in (1, 2, 5)),
    ),
    _improvements(),
    ABLATIONS,
    REMEDIES,
    OWN_DATA,
    NOISE,
    HOPPER,
    LAPTOP,
    Experiment(
        "environments",
        "updates per frame held fixed while environments vary; the paper's comparison lets them fall",
        tuple(
            Run(
                "fac-shared",
                "cheetah-run",
                envs,
                steps=200_000,
                label=f"{envs} rounds",
                options=(("agent.cycles", envs),),
            )
            for envs in (1, 2, 4)
        ),
    ),
]

EXPERIMENTS = {experiment.name: experiment for experiment in _EXPERIMENTS}
"""All experiments by name."""


def find_experiment(name: str) -> Experiment:
    """The experiment of this name."""
    if name not in EXPERIMENTS:
        hint = did_you_mean(name, EXPERIMENTS) or f"; known are {', '.join(EXPERIMENTS)}"
        raise UsageError(f"unknown experiment '{name}'{hint}")
    return EXPERIMENTS[name]
