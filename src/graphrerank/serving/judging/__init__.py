"""Page on which a user asks questions about a corpus and clicks the relevant passages (``graphrerank judge``)."""
