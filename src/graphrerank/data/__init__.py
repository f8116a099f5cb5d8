"""Readers, encoding, candidate lists and batches."""
