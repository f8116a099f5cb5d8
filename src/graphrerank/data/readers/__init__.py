"""Readers of the files of data sets: corpora, queries, judgements, edges, entities and downloads."""
