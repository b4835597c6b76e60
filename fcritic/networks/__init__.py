"""Networks: arrays-only modules, written for one example."""
