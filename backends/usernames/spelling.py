# SPDX-License-Identifier: MIT
"""Names of people in plain ASCII letters, for usernames. Asked by `candidates`.

Accents are dropped here, `anyascii` spells the letters that are left: Latin, Greek and Cyrillic ones. Of other scripts
nothing is kept: it takes every Han character as Mandarin, which is wrong for a Japanese name.
"""

from __future__ import annotations

import unicodedata

from anyascii import anyascii

SCRIPTS = ("LATIN ", "GREEK ", "CYRILLIC ")
# Cyrillic as in a passport (ICAO 9303) and Serbian as before, where anyascii spells another way; `ĸ` is a Latin k.
_PASSPORT = str.maketrans({
    "й": "i", "ю": "iu", "я": "ia", "ъ": "ie", "ь": "", "ђ": "d", "џ": "dz", "ĸ": "k",
})  # fmt: skip


def plain(text: str) -> str:
    """Return small ASCII letters, digits and punctuation; what cannot be written with them is dropped."""
    spelled = unicodedata.normalize("NFC", text.casefold()).translate(_PASSPORT)
    letters = (
        letter
        for letter in unicodedata.normalize("NFD", spelled)
        if letter.isascii() or unicodedata.name(letter, "").startswith(SCRIPTS)
    )
    return anyascii("".join(letters)).lower()
