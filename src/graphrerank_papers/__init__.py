"""The papers and the systems beside the library: indexes, pipelines, experiments, answers and builders of data sets."""
