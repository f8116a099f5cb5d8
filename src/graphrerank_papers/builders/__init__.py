"""Build data set folders from the files that the authors of a data set publish."""
