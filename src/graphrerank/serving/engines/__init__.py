"""Engines, each of which answers batches of one kind of request."""
