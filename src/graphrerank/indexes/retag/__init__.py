"""ReTAG's index: topics, communities and their summaries."""
