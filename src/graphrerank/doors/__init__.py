"""The three doors: the only code that sees a configuration."""
