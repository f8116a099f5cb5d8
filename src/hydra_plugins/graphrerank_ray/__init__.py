"""Hydra launcher that runs the jobs of a sweep on Ray."""
