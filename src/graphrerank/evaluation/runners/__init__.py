"""Runners rank the queries of a data set with all systems of one kind. There is one class per kind."""
