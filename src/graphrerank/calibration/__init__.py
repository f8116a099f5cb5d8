"""Probabilities of relevance of single candidates and of whole lists, and how they are fitted."""
