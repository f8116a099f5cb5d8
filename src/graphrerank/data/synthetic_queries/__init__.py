"""Questions drafted from passages, for corpora without judged questions."""
