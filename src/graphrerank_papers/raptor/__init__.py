"""RAPTOR."""
