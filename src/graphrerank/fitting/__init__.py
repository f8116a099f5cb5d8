"""Train a reranker in plain Python: prepared data, a model and a loss in, a checkpoint with its manifest out."""
