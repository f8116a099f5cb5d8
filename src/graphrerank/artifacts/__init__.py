"""Artifacts are exported models that can be served: export, file formats, parity checks, loading and benchmarks."""
