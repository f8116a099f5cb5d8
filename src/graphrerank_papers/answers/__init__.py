"""Answer questions from retrieved passages: pack contexts, write answers, score them, and compare systems."""
