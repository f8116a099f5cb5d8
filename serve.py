"""Export and serve a checkpoint; ``python serve.py --help`` lists every setting.

``python serve.py checkpoint=RUN`` exports a run once and answers HTTP requests; ``python serve.py mode=export
checkpoint=RUN artifact=DIR`` only exports it, to TorchScript and the other formats; ``python serve.py artifact=DIR``
serves what was exported.
"""

import sys
from pathlib import Path

from graphrerank.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["serve", *sys.argv[1:]], conf=Path(__file__).parent / "conf"))
