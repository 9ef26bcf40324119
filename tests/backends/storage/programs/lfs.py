# SPDX-License-Identifier: MIT
"""lfs setquota and quota for users, groups, projects (KiB or with a unit, the mount point last), lfs project."""

from __future__ import annotations

import os
import re

from world import begin, end, load, save, user

words = begin()
if words[:1] == ["project"]:
    place = words[-1]
    if not os.path.isdir(place):
        end(2, f"lfs project: failed to stat '{place}': No such file or directory\n")
    kept = load("lustre_projects")
    number = str(os.stat(place).st_ino)
    if words[1:-1] == ["-d"]:
        tag, flag = kept.get(number, ["0", "-"])
        end(0, stdout=f"{tag:>5} {flag} {place}\n")
    if len(words) != 6 or words[1] != "-p" or not words[2].isdigit() or words[3:5] != ["-r", "-s"]:
        end(1, "usage: lfs project -p ID [-r] [-s] DIR\n")
    kept[number] = [words[2], "P"]
    save("lustre_projects", kept)
    end(0)
KINDS = {"-p": "project", "-g": "group"}
if words[:2] == ["quota", "-q"] and words[2] in KINDS and len(words) == 5:
    if load("file_systems").get(words[4]) != "lustre":
        end(1, f"lfs quota: {words[4]} is not a Lustre mount point\n")
    mine = load("lustre").get(f"{KINDS[words[2]]} {words[3]}", {})
    block, inode = ((mine.get(soft, 0), mine.get(hard, 0)) for soft, hard in (("-b", "-B"), ("-i", "-I")))
    end(0, stdout=f"{words[4]:>15}\n{'4':>23} {block[0]} {block[1]} - 1 {inode[0]} {inode[1]} -\n")
if words[:2] == ["quota", "-u"] and len(words) == 4:
    if load("file_systems").get(words[3]) != "lustre":
        end(1, f"lfs quota: {words[3]} is not a Lustre mount point\n")
    mine = load("lustre").get(words[2], {})
    end(
        0,
        stdout=f"Disk quotas for usr {words[2]}:\n  {words[3]}  0  {mine.get('-b', 0)}  {mine.get('-B', 0)}\n",
    )
if words[:1] != ["setquota"] or words[1] not in ("-u", *KINDS) or len(words) < 6 or len(words) % 2:
    end(1, "usage: lfs setquota {-u|-g|-p} NAME [-b SOFT] [-B HARD] [-i SOFT] [-I HARD] MOUNT\n")
name, options, mount = words[2], words[3:-1], words[-1]
if load("file_systems").get(mount) != "lustre":
    end(25, f"setquota failed: {mount}: Inappropriate ioctl for device\n")
if words[1] in KINDS:
    if not name.isdigit() or not 0 < int(name) < 2**32 - 1:
        end(22, f"lfs setquota: invalid {KINDS[words[1]]} ID '{name}'\n")
    name = f"{KINDS[words[1]]} {name}"
elif user(name) is None:
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
