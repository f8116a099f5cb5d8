"""Corpus folder on disk: written in shards, memory-mapped, and opened in constant time."""
