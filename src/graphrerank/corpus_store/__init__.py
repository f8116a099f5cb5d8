"""A corpus on disk: written part by part, opened in constant time, mapped and not read."""
