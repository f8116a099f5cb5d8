"""ReTAG over a corpus of global questions."""
