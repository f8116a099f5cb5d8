"""Evaluate a checkpoint on data sets with ``python evaluate.py checkpoint=RUN 'datasets=[attack]'``."""

import sys
from pathlib import Path

from graphrerank.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["evaluate", *sys.argv[1:]], conf=Path(__file__).parent / "conf"))
