"""Knowledge graph prompting (KGP)."""
