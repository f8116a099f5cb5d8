"""ReTAG: its index, its retrieval and its experiments."""
