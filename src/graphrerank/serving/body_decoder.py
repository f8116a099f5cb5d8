"""Decode the body of a request while it arrives, so that no more than the limit is ever decompressed."""

import zlib
from collections.abc import Iterator

from graphrerank.serving.engine import Refusal

ENCODINGS = ("gzip", "x-gzip")
GZIP = 16 + zlib.MAX_WBITS  # tells zlib to read the header and the checksum of gzip
PIECE_BYTES = 65_536  # largest size of a decompressed piece
INCOMPLETE = "body: must be complete gzip data because `content-encoding` is gzip"


class BodyDecoder:
    """Decodes the chunks of one body.

    The body may consist of several gzip members, as in files that were concatenated.

    Args:
        encoding: Value of the header ``content-encoding``. An empty value or ``identity`` leaves the body as it is.

    Raises:
        Refusal: 415, if the encoding is not supported.

    Example:
        >>> import gzip
        >>> decoder = BodyDecoder("gzip")
        >>> b"".join(decoder.pieces(gzip.compress(b"{}")))
        b'{}'
        >>> decoder.finish()
    """

    def __init__(self, encoding: str = "") -> None:
        name = encoding.strip().lower()
        if name not in (*ENCODINGS, "", "identity"):
            raise Refusal(415, "headers: `content-encoding` must be gzip or absent")
        self._is_gzip = name in ENCODINGS
        self._member = zlib.decompressobj(GZIP)
        self._has_begun = False  # whether the current member has any bytes

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the decoded content of a chunk in pieces of limited size.

        The caller stops the iteration when the body is too large, before the next piece is decompressed.

        Args:
            chunk: Next bytes of the body.

        Yields:
            Non-empty pieces of the decoded body.

        Raises:
            Refusal: 400, if the body is not gzip data.
        """
        if not self._is_gzip:
            if chunk:
                yield chunk
            return
        while chunk:
            self._has_begun = True
            try:
                piece = self._member.decompress(chunk, PIECE_BYTES)
            except zlib.error:
                raise Refusal(400, INCOMPLETE) from None
            if piece:
                yield piece
            chunk = self._member.unconsumed_tail
            if self._member.eof:
                chunk = self._member.unused_data
                self._member, self._has_begun = zlib.decompressobj(GZIP), False

    def finish(self) -> None:
        """Check that the body is complete.

        Raises:
            Refusal: 400, if the last gzip member is incomplete.
        """
        if self._has_begun:
            raise Refusal(400, INCOMPLETE)
