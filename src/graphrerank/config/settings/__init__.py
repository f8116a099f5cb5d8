"""Settings of the commands as documented dataclasses, one per command."""
