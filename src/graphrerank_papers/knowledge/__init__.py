"""Extraction of entities and relations from passages, by spaCy or a language model."""
