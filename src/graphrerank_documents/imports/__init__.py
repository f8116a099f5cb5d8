"""Resolve import statements to the files of a folder, with one module per language family."""
