"""Where the settings lie."""

from pathlib import Path

CONF = "conf"


def conf_folder() -> Path:
    """Return the folder of settings: in the wheel beside this file, in a checkout at its top."""
    package = Path(__file__).parent
    return next(folder for folder in (package / CONF, package.parents[1] / CONF) if folder.is_dir())
