"""Engines beyond one process: connection to a Ray cluster, and processing of shards by its workers."""
