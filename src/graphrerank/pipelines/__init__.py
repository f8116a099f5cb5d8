"""Published retrieval systems as lists of operators; KET-RAG's and ReTAG's in packages of their own."""
