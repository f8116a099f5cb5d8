"""A module for each family of formats: bytes of a file to documents."""
