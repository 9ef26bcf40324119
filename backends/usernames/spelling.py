# SPDX-License-Identifier: MIT
# ruff: noqa: RUF001 -- letters that look like others are what this table is about
"""Names of people in plain ASCII letters.

Letters with an accent lose it (`é` to `e`, `ä` to `a`); letters that no accent explains are spelled out (`ø` to
`o`, `ß` to `ss`, `ł` to `l`, `þ` to `th`), Greek and Cyrillic ones as in a passport. Of other scripts nothing is left.
"""

from __future__ import annotations

import unicodedata

_SPELLED = str.maketrans({
    "ø": "o", "ß": "ss", "ł": "l", "æ": "ae", "œ": "oe", "đ": "d", "ð": "d", "þ": "th", "ı": "i", "ħ": "h",
    "ŋ": "ng", "ŧ": "t", "ĸ": "k", "ə": "e", "ƒ": "f", "ɓ": "b", "ɗ": "d", "ƙ": "k", "ɛ": "e", "ɔ": "o",
    # Greek, ELOT 743 without its rules for pairs
    "α": "a", "β": "v", "γ": "g", "δ": "d", "ε": "e", "ζ": "z", "η": "i", "θ": "th", "ι": "i", "κ": "k",
    "λ": "l", "μ": "m", "ν": "n", "ξ": "x", "ο": "o", "π": "p", "ρ": "r", "σ": "s", "ς": "s", "τ": "t",
    "υ": "y", "φ": "f", "χ": "ch", "ψ": "ps", "ω": "o",
    # Cyrillic, ICAO 9303; Ukrainian, Belarusian, Serbian and Macedonian letters with it
    "а": "a", "б": "b", "в": "v", "г": "g", "д": "d", "е": "e", "ж": "zh", "з": "z", "и": "i", "к": "k",
    "л": "l", "м": "m", "н": "n", "о": "o", "п": "p", "р": "r", "с": "s", "т": "t", "у": "u", "ф": "f",
    "х": "kh", "ц": "ts", "ч": "ch", "ш": "sh", "щ": "shch", "ъ": "ie", "ы": "y", "ь": "", "э": "e",
    "ю": "iu", "я": "ia", "ґ": "g", "є": "ie", "і": "i", "ђ": "d", "ј": "j", "љ": "lj", "њ": "nj", "ћ": "c",
    "џ": "dz", "ѕ": "dz",
})  # fmt: skip


def plain(text: str) -> str:
    """Small ASCII letters, digits and punctuation; whatever cannot be written with them is gone."""
    spelled = unicodedata.normalize("NFC", text.casefold()).translate(_SPELLED)
    bare = "".join(c for c in unicodedata.normalize("NFD", spelled) if not unicodedata.combining(c))
    return bare.translate(_SPELLED).encode("ascii", "ignore").decode()
