"""Clients of language models, a cache of answers, and prompts."""
