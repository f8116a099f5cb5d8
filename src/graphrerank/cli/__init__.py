"""Entry points: compose a configuration and call one job."""
