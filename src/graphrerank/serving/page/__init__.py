"""The page on which people look at a ranking: static files, read once, that ask the service's own routes."""

from graphrerank.serving.page.routes import PAGE_PATHS, add_page

__all__ = ["PAGE_PATHS", "add_page"]
