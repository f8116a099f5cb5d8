"""GraphER: its protocol, its sources and its tables."""
