"""Readers of data set files: corpora, queries, judgements, edges and entities, and downloads."""
