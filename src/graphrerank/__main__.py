"""Run a command as ``python -m graphrerank COMMAND``, which equals ``graphrerank COMMAND``."""

import sys

from graphrerank.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
