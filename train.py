"""Train a graph reranker: ``python train.py``; every setting is in ``conf/train.yaml``."""

import sys
from pathlib import Path

from graphrerank.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]], conf=Path(__file__).parent / "conf"))
