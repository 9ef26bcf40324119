# SPDX-License-Identifier: MIT
"""getfattr with --only-values: the bare value, no line break."""

from __future__ import annotations

import os

from world import begin, end, load

words = [word for word in begin() if word != "-h"]
if len(words) != 4 or words[0] != "--only-values" or words[1] != "-n":
    end(2, "Usage: getfattr [-hRLP] [-n name|-d] [-e en] [-m pattern] path...\n")
name, path = words[2], words[3]
if not os.path.exists(path):
    end(1, f"getfattr: {path}: No such file or directory\n")
value = load("attributes").get(os.path.realpath(path), {}).get(name)
if value is None:
    end(1, f"{path}: {name}: No such attribute\n")
end(0, stdout=value)
