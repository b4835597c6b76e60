"""What is a policy worth that was never run? Ask a trained agent's critics, then run it and compare.

fcritic train --recipe fac-small --task cartpole-swingup --action-repeat 4 --steps 56000 --out runs/first
python examples/value_of_any_policy.py runs/first
"""

import argparse

import jax
import numpy as np

import fcritic
from fcritic import envs


def perturbed(policy, scale, seed):
    """A policy near another: every weight is changed by so much of the layer's own spread."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: leaf + scale * float(leaf.std()) * rng.normal(size=leaf.shape), policy)


def measured(agent, policy, seeds):
    """Discounted rewards of episodes from these seeds, up to their time limit; and their first observations."""
    returns, starts = [], []
    env = envs.make(agent.config.task, seed=0, action_repeat=agent.config.action_repeat)
    for seed in seeds:
        env.reseed(seed)
        obs, total, weight, over = env.reset(), 0.0, 1.0, False
        starts.append(obs)
        while not over:
            own_units = agent.act(obs, policy)
            obs, reward, discount, over = env.step(agent.units.actions.unscale(own_units))
            total += weight * reward
            weight *= agent.config.agent.discount * discount
        returns.append(total)
    return np.array(returns), np.stack(starts)


def rank_correlation(a, b):
    """Spearman's: 1 where both put the policies in the same order."""
    ranks = [np.argsort(np.argsort(each)) for each in (a, b)]
    return float(np.corrcoef(ranks)[0, 1])


def main(directory, episodes=5, copies=4):
    """Values, comparison and gradient of policies that were never run, each beside its measurement."""
    agent = fcritic.load(directory)
    policies = {f"actor {k}": agent.policy(k) for k in range(agent.actors)}
    for scale in (0.1, 0.3, 1.0):
        for copy in range(copies):
            policies[f"actor 0 changed by {scale} ({copy})"] = perturbed(agent.policy(0), scale, copy)

    seeds = range(1000, 1000 + episodes)
    told, seen = [], []
    print(f"{'policy':<28} told  spread   run  ({episodes} episodes each)")
    for name, policy in policies.items():
        returns, starts = measured(agent, policy, seeds)
        values = np.asarray(agent.value(policy, starts)).mean(axis=1)  # one per critic
        told.append(values.mean())
        seen.append(returns.mean())
        print(f"{name:<28} {told[-1]:6.2f} {values.std():6.2f} {seen[-1]:6.2f}")
    agreement = rank_correlation(told, seen)
    print(f"order of the {len(told)} policies, told against run: rank correlation {agreement:.2f}")

    first, worst = agent.policy(0), list(policies.values())[-1]
    found = agent.compare(first, worst, starts)
    print(f"actor 0 against the last: told {found.mean:+.2f} +- {found.spread:.2f}, run {seen[0] - seen[-1]:+.2f}")

    slope = agent.gradient(worst, starts)
    length = np.sqrt(sum(float((leaf**2).sum()) for leaf in jax.tree.leaves(slope))) or 1.0
    better = jax.tree.map(lambda leaf, way: leaf + 0.3 * way / length, worst, slope)
    rise, run = agent.compare(better, worst, starts).mean, measured(agent, better, seeds)[0].mean() - seen[-1]
    print(f"the last, a step up its gradient: told {rise:+.2f}, run {run:+.2f}")
    return agreement


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", help="a run")
    parser.add_argument("--episodes", type=int, default=5)
    options = parser.parse_args()
    main(options.directory, options.episodes)
