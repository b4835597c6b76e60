"""Experiments as data: named lists of trainings, what runs them, and what is made of them."""
