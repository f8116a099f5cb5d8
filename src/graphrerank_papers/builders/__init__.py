"""Data set folders from the files that a data set's authors publish: one module for each, one writer."""
