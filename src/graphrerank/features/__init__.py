"""What a model reads of a candidate: scores, words and pairs, computed from plain texts and tensors."""
