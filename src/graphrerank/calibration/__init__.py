"""Calibrate scores to probabilities: that a candidate is relevant, and that a list contains every relevant passage."""
