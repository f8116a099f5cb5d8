"""Settings: Hydra composition, components by name, and guards of what a manifest may name."""
