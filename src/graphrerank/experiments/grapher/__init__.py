"""GraphER's tables."""
