"""Where the blocks of a corpus are worked on: in this process, or by the workers of a Ray cluster."""
