"""Measurements that take minutes and depend on the machine: run by `fcritic bench`, never by the tests."""

from fcritic.bench import process_clock  # noqa: F401 - before JAX, where its own time has to do
