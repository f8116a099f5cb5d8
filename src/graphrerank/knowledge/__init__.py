"""Extraction of entities and relations from passages, and a cache of the results."""
