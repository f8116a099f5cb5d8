"""Readers of file formats: each module parses the bytes of a file into documents."""
