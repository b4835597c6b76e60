"""Exploration in problems with known answers: posterior sampling beside ensembles of critics (`sec-psrl`)."""
