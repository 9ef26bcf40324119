# SPDX-License-Identifier: MIT
"""lfs setquota and lfs quota for users: limits as KiB or with a unit, the mount point last."""

from __future__ import annotations

import re

from world import begin, end, load, save, user

words = begin()
if words[:2] == ["quota", "-u"] and len(words) == 4:
    if load("file_systems").get(words[3]) != "lustre":
        end(1, f"lfs quota: {words[3]} is not a Lustre mount point\n")
    mine = load("lustre").get(words[2], {})
    end(
        0,
        stdout=f"Disk quotas for usr {words[2]}:\n  {words[3]}  0  {mine.get('-b', 0)}  {mine.get('-B', 0)}\n",
    )
if words[:2] != ["setquota", "-u"] or len(words) < 6 or len(words) % 2:
    end(1, "usage: lfs setquota {-u|-g|-p} NAME [-b SOFT] [-B HARD] [-i SOFT] [-I HARD] MOUNT\n")
name, options, mount = words[2], words[3:-1], words[-1]
if load("file_systems").get(mount) != "lustre":
    end(25, f"setquota failed: {mount}: Inappropriate ioctl for device\n")
if user(name) is None:
    end(22, f"lfs setquota: unknown user '{name}'\n")
limits = dict(zip(options[::2], options[1::2], strict=True))
for option, value in limits.items():
    unit = "" if option in ("-i", "-I") else "[kmgtpeKMGTPE]?"
    if option not in ("-b", "-B", "-i", "-I") or not re.fullmatch(f"[0-9]+{unit}", value):
        end(22, f"lfs setquota: bad value for option {option}: {value}\n")
quotas = load("lustre")
quotas.setdefault(name, {}).update(limits)
save("lustre", quotas)
end(0)
