"""Adapters to other libraries, one module per library. Each library must be installed separately."""
