"""Extraction of entities and relations from passages with spaCy or a language model."""
