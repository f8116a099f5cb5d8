"""Optional dependencies, plugins of other packages, and the folder of settings."""
