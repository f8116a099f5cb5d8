"""Entities of passages and the relations between them: extractors and their cache."""
