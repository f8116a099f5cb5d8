"""Readers of data sets: folders, registry packages, databases and run files."""
