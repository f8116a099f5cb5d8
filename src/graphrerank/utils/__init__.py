"""Helpers without knowledge of retrieval: files, caches, argument checks, progress and safe loading."""
