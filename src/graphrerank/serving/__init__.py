"""Exported artifacts, and the HTTP service that loads them."""

from graphrerank.installation.extras import importing

with importing("serve", "graphrerank.serving"):
    import graphrerank.serving.server  # noqa: F401
