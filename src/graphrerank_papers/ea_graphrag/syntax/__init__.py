"""Features of a text's syntax, from dependency or constituency trees."""
