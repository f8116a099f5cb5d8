"""Features of candidates: scores, matching words and pair vectors, computed from texts and tensors."""
