"""Answers from retrieved passages: packed, written, scored and compared."""
