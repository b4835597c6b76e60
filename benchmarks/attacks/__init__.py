"""Proof by attack that nothing is lost: trainings are stopped, killed, starved and poisoned, then compared."""
