"""HTTP service for exported artifacts."""

from graphrerank.installation.extras import importing

with importing("serve", "graphrerank.serving"):
    import graphrerank.serving.server  # noqa: F401
