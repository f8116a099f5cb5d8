"""``graphrerank forget LOG USER``: delete all logged events of a user, even while the service runs."""

import argparse
from collections.abc import Sequence
from pathlib import Path


def parser() -> argparse.ArgumentParser:
    """Return the argument parser of the command."""
    described = argparse.ArgumentParser(prog="graphrerank forget", description=__doc__)
    described.add_argument(
        "log", type=Path, help="folder of the feedback log, the setting feedback.path of the service"
    )
    described.add_argument(
        "user",
        help="user to delete: `sub` of the user's tokens, principals (a JSON list, or separated by commas), or `user` "
        "of the requests",
    )
    kinds = "kind of USER: sub, principals or name (`user` of the requests); by default, all kinds are deleted"
    described.add_argument("--kind", choices=["sub", "principals", "name"], help=kinds)
    return described


def main(arguments: Sequence[str]) -> int:
    """Delete all events of a user (:func:`~graphrerank.serving.feedback_log.forget_user`), and print their number.

    Args:
        arguments: Command-line arguments after the name of the command.

    Returns:
        Exit status.
    """
    parsed = parser().parse_args(arguments)
    from graphrerank.serving.feedback_log import forget_user

    print(f"{forget_user(parsed.log, parsed.user, parsed.kind)} events deleted")
    return 0
