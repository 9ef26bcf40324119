# SPDX-License-Identifier: MIT
"""setfattr on Ceph: knows the two attributes of quotas, and takes whole numbers."""

from __future__ import annotations

import os

from world import begin, end, file_system, load, save

words = begin()
follows = "-h" not in words
words = [word for word in words if word != "-h"]
if len(words) != 5 or words[0] != "-n" or words[2] != "-v":
    end(2, "Usage: setfattr {-n name} [-v value] [-h] file...\n")
name, value, path = words[1], words[3], words[4]
if led := load("swap").get(path):
    # Another process was faster: what was a folder when it was looked at is a link.
    os.rmdir(path)
    os.symlink(led, path)
if not follows and os.path.islink(path):
    end(1, f"setfattr: {path}: Operation not permitted\n")
if not os.path.exists(path):
    end(1, f"setfattr: {path}: No such file or directory\n")
if file_system(path) != "ceph" or name not in ("ceph.quota.max_bytes", "ceph.quota.max_files"):
    end(1, f"setfattr: {path}: Operation not supported\n")
if not (value.isascii() and value.isdigit()):
    end(1, f"setfattr: {path}: Invalid argument\n")
attributes = load("attributes")
attributes.setdefault(os.path.realpath(path), {})[name] = value
save("attributes", attributes)
end(0)
