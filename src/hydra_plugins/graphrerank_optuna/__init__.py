"""Hydra sweeper that searches hyperparameters with Optuna."""
