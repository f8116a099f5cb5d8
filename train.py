"""Train a graph reranker: ``python train.py``.

``conf/train.yaml`` has every setting. ``src/graphrerank/cli/train.py`` has the steps: data, models, callbacks, logger,
trainer, training and evaluation.
"""

import sys
from pathlib import Path

from graphrerank.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]], conf=Path(__file__).parent / "conf"))
