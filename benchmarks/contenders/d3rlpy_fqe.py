"""Values of policies by d3rlpy's FQE, one fit for each policy. Runs in the peers' own environment.

    python d3rlpy_fqe.py PROBLEM.npz STEPS

Nothing of fcritic is imported here. The problem has the logged rows, the weights of the policies, and the first
states at which they are valued. One line of JSON says what runs, then one for each policy its value and seconds.
"""

from importlib.metadata import version
import json
import logging
import sys
import time

import d3rlpy
import numpy as np
import torch

HIDDEN = [128, 128]
BATCH = 256
LEARNING_RATE = 3e-4
GAMMA = 0.99


def main(problem: str, steps: int) -> None:
    """Fits and values the policies in turn."""
    with np.load(problem) as file:
        arrays = dict(file)
    d3rlpy.seed(0)
    logging.disable(logging.CRITICAL)
    data = d3rlpy.dataset.MDPDataset(
        arrays["obs"], arrays["act"], arrays["reward"], arrays["terminal"], arrays["timeout"],
        action_space=d3rlpy.ActionSpace.CONTINUOUS,
    )  # fmt: skip
    starts = arrays["starts"]
    settings = {"hidden": HIDDEN, "batch_size": BATCH, "learning_rate": LEARNING_RATE, "steps": steps}
    _tell({"settings": settings, "versions": {name: version(name) for name in ("d3rlpy", "torch", "numpy")}})
    for number in range(len(arrays["weight0"])):
        algo = d3rlpy.algos.DDPGConfig().create()
        algo.build_with_dataset(data)
        policy = _policy(arrays, number)
        algo.impl.predict_best_action = policy
        encoder = d3rlpy.models.VectorEncoderFactory(HIDDEN)
        config = d3rlpy.ope.FQEConfig(
            learning_rate=LEARNING_RATE, batch_size=BATCH, gamma=GAMMA, encoder_factory=encoder
        )
        fqe = d3rlpy.ope.FQE(algo=algo, config=config)
        begun = time.perf_counter()
        fqe.fit(
            data, n_steps=steps, n_steps_per_epoch=steps, show_progress=False,
            logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
        )  # fmt: skip
        act = policy(torch.as_tensor(starts)).numpy()
        value = float(fqe.predict_value(starts, act).mean())
        _tell({"value": value, "seconds": time.perf_counter() - begun})


def _policy(arrays, number):
    layers = [[torch.as_tensor(arrays[f"{kind}{n}"][number]) for kind in ("weight", "bias")] for n in range(3)]
    mean, deviation = (torch.as_tensor(arrays[name][number]) for name in ("mean", "deviation"))

    @torch.no_grad()
    def act(obs):
        value = ((obs - mean) / deviation).clamp(-10, 10)
        for place, (weight, bias) in enumerate(layers):
            value = value @ weight + bias
            value = value.relu() if place < 2 else value.tanh()
        return value

    return act


def _tell(message: dict) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
