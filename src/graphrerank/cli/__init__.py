"""Commands: each composes a configuration and calls one job."""
