"""Functional critics for off-policy actor-critic: Q(policy, state, action)."""
