"""GraphER: its experimental protocol, its data sources and its tables."""
