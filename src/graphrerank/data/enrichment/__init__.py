"""Edges computed from passages: mentions, shared entities, nearest vectors, and random edges."""
