"""A launcher of Hydra: the runs of a sweep on Ray."""
