"""What happens before the first step: the JAX backend, kept compiled programs, diagnosis."""
