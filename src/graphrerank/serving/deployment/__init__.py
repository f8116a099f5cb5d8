"""Deployment of artifacts: replacement without interruption, shadow ranking, and comparison by feedback."""

from graphrerank._moved import moved_names

__getattr__ = moved_names(__name__)
