"""Learn from click feedback: logs, position bias, and a gate that accepts only significantly better models."""
