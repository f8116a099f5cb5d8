"""Choose the alternative texts of images that say something about the image."""

import re

_FILE = re.compile(r"\S*\.(?:png|jpe?g|gif|svg|webp|bmp|avif|tiff?|heic|ico)\Z", re.IGNORECASE)
_KINDS = (
    "image|img|icon|logo|photo|picture|pic|screen ?shot|screen ?capture|screencast|figure|fig|diagram|graphic|"
    "thumbnail|thumb|avatar|badge|spacer|placeholder|untitled|alt(?: ?text)?|emoji|dsc|pxl|"
    "clipboard|pasted image|bild|abbildung|imagen|captura"
)
_GENERIC = re.compile(rf"(?:an? |the )?(?:{_KINDS})[\s\d_.,:()/-]*(?:at [\d\s_.,:-]+)?(?:[ap]m)?\Z", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]")


def alt_text(text: str) -> str:
    """Return the alternative text of an image as one line, or an empty string if it does not describe the image.

    File names, URLs, numbers and words for images in general, such as ``Screenshot 2024-05-01 at 10.12.00``, describe
    nothing, so a search must not find them.

    Args:
        text: Alternative text as written.

    Example:
        >>> alt_text("Pressure  curve of the pump"), alt_text("IMG_2031.png"), alt_text("image 3"), alt_text("@ada")
        ('Pressure curve of the pump', '', '', '')
    """
    line = " ".join(text.split())
    is_noise = "://" in line or line.startswith(("@", "data:")) or not _WORD.search(line)
    return "" if is_noise or _FILE.match(line) or _GENERIC.match(line) else line
