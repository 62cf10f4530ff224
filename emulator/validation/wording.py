"""What users wrote, in our own sentences (pure)."""

from __future__ import annotations

__all__ = ["shown"]


def shown(text: str, most: int = 200) -> str:
    """Return a text of at most `most` characters on one line, in characters that can be printed.

    Of a longer one the middle is left out.
    """
    if len(text) > most:
        text = f"{text[: most // 2]}…{text[-most // 2 :]}"
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
