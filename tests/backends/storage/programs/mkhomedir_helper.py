# SPDX-License-Identifier: MIT
"""mkhomedir_helper of Linux-PAM 1.5: silent, ends with a number of PAM, takes the umask as C does (0077, not 77)."""

from __future__ import annotations

import os
import re

from world import begin, end, user

words = begin()
if not 1 <= len(words) <= 4:
    end(14, "Usage: mkhomedir_helper <username> [<umask> [<skeldir> [<home_mode>]]]\n")
umask = 0o022
if len(words) > 1:
    number = re.fullmatch(r"0[0-7]*|[1-9][0-9]*", words[1])
    if number is None:
        end(14)
    umask = int(words[1], 8 if words[1].startswith("0") else 10)
entry = user(words[0])
if entry is None:
    end(10)
uid, home = entry
if os.path.exists(home):
    end(0)
os.umask(0o022)
os.makedirs(os.path.dirname(home), exist_ok=True)
try:
    os.mkdir(home)
    with open(os.path.join(home, ".profile"), "w") as profile:
        profile.write("# from the skeleton\n")
    os.chmod(home, 0o777 & ~umask)
    if os.geteuid() == 0:
        os.chown(home, uid, uid)
except OSError:
    end(6)
end(0)
