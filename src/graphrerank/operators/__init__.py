"""Frozen operators and retrievers: components that are not trained. Each file contains one published operator."""
