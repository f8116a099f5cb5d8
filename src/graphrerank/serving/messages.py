"""Messages between the processes of one service: length-prefixed pickles over Unix sockets.

Both ends are our own processes, and the sockets lie in a folder that no other user may enter.
"""

import pickle
import socket
from asyncio import StreamReader
from pathlib import Path
from struct import Struct
from typing import Any

_LENGTH = Struct("!Q")


def pack(message: Any) -> bytes:
    """Return the bytes of a message."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(body)) + body


async def read_message(reader: StreamReader) -> Any:
    """Wait for a message.

    Raises:
        EOFError: If the other end is gone.
    """
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return pickle.loads(await reader.readexactly(length))


def receive(connection: socket.socket) -> Any:
    """Wait for a message, as :func:`read_message` does.

    Raises:
        EOFError: If the other end is gone.
    """
    (length,) = _LENGTH.unpack(_receive_exactly(connection, _LENGTH.size))
    return pickle.loads(_receive_exactly(connection, length))


def listen(path: Path) -> socket.socket:
    """Open a listening socket.

    Raises:
        ValueError: If the path is longer than the system's limit, some 100 characters.
    """
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(path))
    except OSError as error:
        listener.close()
        raise ValueError(f"{path}: cannot open a socket ({error}); set TMPDIR to a folder with a short path") from error
    listener.listen()
    return listener


def connect(path: Path) -> socket.socket:
    """Connect to a listening socket."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(path))
    return connection


def _receive_exactly(connection: socket.socket, length: int) -> bytes:
    received = bytearray(length)
    view, filled = memoryview(received), 0
    while filled < length:
        if not (count := connection.recv_into(view[filled:])):
            raise EOFError("the other end is gone")
        filled += count
    return bytes(received)
