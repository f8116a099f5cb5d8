"""Evaluation: systems give rankings and costs, which are measured, tested and reported."""
