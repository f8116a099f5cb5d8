"""Published retrieval systems as lists of operators."""
