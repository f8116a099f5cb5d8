"""The experiments of the papers, a package each."""
