"""What is installed: optional dependencies, plugins of other packages, and the folder of settings."""
