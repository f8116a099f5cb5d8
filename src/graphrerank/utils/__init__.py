"""Helpers without knowledge of retrieval: files, caches, checks of arguments, progress, safe loading."""
