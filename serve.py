"""Export and serve a checkpoint. ``python serve.py --help`` describes every setting.

``python serve.py checkpoint=RUN`` exports the checkpoint of a run and serves it over HTTP.
``python serve.py mode=export checkpoint=RUN artifact=DIR`` exports the checkpoint without serving it.
``python serve.py artifact=DIR`` serves an exported artifact.
"""

import sys
from pathlib import Path

from graphrerank.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["serve", *sys.argv[1:]], conf=Path(__file__).parent / "conf"))
