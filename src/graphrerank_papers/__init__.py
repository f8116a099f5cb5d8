"""Papers and systems built on the library: indexes, pipelines, experiments, answers and builders of data sets."""
