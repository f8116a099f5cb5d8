from pathlib import Path


def flip_bit(path: Path, share: float = 0.6) -> None:
    """Flip one bit of a file's byte at a share of its size, which leaves the file readable in most cases."""
    content = bytearray(path.read_bytes())
    content[int(share * len(content))] ^= 1
    path.write_bytes(content)
