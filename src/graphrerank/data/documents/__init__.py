"""A data set folder from a folder of documents: Markdown, HTML, text, JSON, PDF and code."""

from graphrerank.data.documents.draft_folder import draft_folder
from graphrerank.data.documents.index_folder import IndexedFolder, index_folder

__all__ = ["IndexedFolder", "draft_folder", "index_folder"]
