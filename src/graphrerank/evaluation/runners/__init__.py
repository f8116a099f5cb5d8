"""Runners: one class per kind of system, which ranks the queries of a data set with all systems of this kind."""
