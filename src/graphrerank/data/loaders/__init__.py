"""Data sets that are not plain folders: by name from their public home, merged from several, or ATT&CK."""
