"""Export and serve a checkpoint: ``graphrerank export checkpoint=RUN``, ``python serve.py artifact=DIR``."""

import sys
from pathlib import Path

from graphrerank.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["serve", *sys.argv[1:]], conf=Path(__file__).parent / "conf"))
