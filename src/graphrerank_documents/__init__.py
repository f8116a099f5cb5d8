"""Turn folders of files into passages, links and labelled queries.

The package has parsers for the supported file formats, an index of code symbols, and readers for git repositories.
"""
