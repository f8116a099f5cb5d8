"""Frozen operators, one file per published operator."""
