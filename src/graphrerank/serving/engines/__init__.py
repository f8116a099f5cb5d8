"""Engines. Each engine answers batches of one kind of request."""
