"""Measurements that take minutes and depend on the machine: run by `fcritic bench`, never by the tests."""
