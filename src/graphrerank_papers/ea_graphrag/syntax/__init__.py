"""Syntax features of texts, computed from dependency or constituency trees."""
