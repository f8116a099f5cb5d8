"""Names in the files of a run that several packages read."""

METRICS = "metrics.json"  # means, intervals, costs and tests of an evaluation
NOT_MEANS = ("missing", "tied_share", "answers")  # entries of a system in `metrics.json` that are not means
