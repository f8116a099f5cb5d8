"""FastInsight's curves."""
