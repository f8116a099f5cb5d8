"""Artifacts: what is served. Export of checkpoints, their formats, the parity gate, and loading."""
