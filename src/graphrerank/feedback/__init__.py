"""Learn from use: logs of what was shown and clicked, propensities, and a gate that accepts only what is better."""
