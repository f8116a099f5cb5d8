"""HyDE: search by the vectors of hypothetical passages."""
