"""Turn files into passages, links and labels: parsers, code symbols, git history."""
