"""Data sets: readers, splits, encoders, candidate lists, and batches for training."""
