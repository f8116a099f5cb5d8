"""Questions that are drafted from passages, for corpora without judged ones."""
