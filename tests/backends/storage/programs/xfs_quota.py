# SPDX-License-Identifier: MIT
"""xfs_quota -x -c COMMAND MOUNT: splits COMMAND at blanks by itself; a soft limit above the hard one is not kept."""

from __future__ import annotations

import re

from world import begin, end, load, save, user

UNITS = "kmgtpe"


def refuse(text: str) -> None:
    end(1, f"xfs_quota: {text}\n")


def number(text: str, *, blocks: bool) -> int:
    found = re.fullmatch(r"([0-9]+)([kmgtpe]?)", text.lower())
    if found is None or (found[2] and not blocks):
        refuse(f"invalid limit value: {text}")
    assert found is not None
    return int(found[1]) << 10 * (UNITS.index(found[2]) + 1 if found[2] else 0)


words = begin()
if len(words) != 4 or words[:2] != ["-x", "-c"]:
    end(1, "Usage: xfs_quota [-V] [-x] [-f] [-p prog] [-c cmd]... [-d project]... [path]\n")
if load("file_systems").get(words[3]) != "xfs":
    refuse(f"cannot setup path for mount {words[3]}: No such device or address")
command, *rest = words[2].split()
if command == "limit":
    if rest[:1] != ["-u"] or len(rest) < 3:
        end(1, "limit [-g|-p|-u] bsoft|bhard|isoft|ihard|rtbsoft|rtbhard=N -d|id|name\n")
    *settings, name = rest[1:]
    limits = {}
    for setting in settings:
        key, _, value = setting.partition("=")
        if key not in ("bsoft", "bhard", "isoft", "ihard"):
            refuse(f"unrecognised argument {setting}")
        limits[key] = number(value, blocks=key.startswith("b"))
    if user(name) is None:
        refuse(f"invalid user name: {name}")
    quotas = load("xfs")
    mine = quotas.setdefault(words[3], {}).setdefault(name, {})
    for kind in "bi":
        asked = {key: value for key, value in limits.items() if key.startswith(kind)}
        both = {**{f"{kind}soft": 0, f"{kind}hard": 0}, **mine, **asked}
        if not both[f"{kind}hard"] or both[f"{kind}hard"] >= both[f"{kind}soft"]:
            mine.update(asked)
    save("xfs", quotas)
    end(0)
if command == "quota" and rest[:4] == ["-u", "-N", "-b", "-h"] and len(rest) == 5:
    if user(rest[4]) is None:
        refuse(f"invalid user name: {rest[4]}")
    mine = load("xfs").get(words[3], {}).get(rest[4], {})
    end(0, stdout=f"/dev/sda1  0  {mine.get('bsoft', 0)}  {mine.get('bhard', 0)}  00 [------] {words[3]}\n")
end(1, f"command {command!r} not found\n")
