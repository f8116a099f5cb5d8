"""Deployment of artifacts: replacement while they serve, shadow ranking, and comparison by feedback."""

from graphrerank._moved import moved_names

__getattr__ = moved_names(__name__)
