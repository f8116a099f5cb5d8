"""A data set folder from a folder of documents: Markdown, HTML, text, JSON, PDF and code."""
