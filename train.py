"""Train a graph reranker with ``python train.py``.

``python train.py --help`` describes every setting. The steps are in ``src/graphrerank/cli/train.py``: data, models,
callbacks, logger, trainer, training and evaluation.
"""

import sys
from pathlib import Path

from graphrerank.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]], conf=Path(__file__).parent / "conf"))
