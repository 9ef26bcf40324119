# SPDX-License-Identifier: MIT
"""`unit-files`: the systemd units of this installation, written into a folder."""

from __future__ import annotations

import sysconfig
from collections.abc import Sequence
from pathlib import Path

from agent.cli.options import number
from agent.cli.output import echo
from agent.core.errors import SiteAgentError
from agent.core.printable import shortlist
from agent.host import shipped, unit_files


def command(folder: Path, names: Sequence[str], config: Path, legacy: bool, force: bool) -> int:
    files = shipped.folder()
    systemd = files / "systemd"
    if names:
        found = {f"{name}.service": unit_files.of_name(systemd, name, legacy=legacy) or "" for name in names}
    else:
        found = unit_files.of_cluster(systemd, legacy=legacy)
    programs = Path(sysconfig.get_path("scripts"))
    texts = {
        folder / name: unit_files.installed(text, programs=programs, files=files, config=config)
        for name, text in found.items()
    }
    try:
        there = {path: path.read_text(encoding="utf-8", errors="replace") for path in texts if path.exists()}
        differing = [path.name for path, text in there.items() if text != texts[path]]
        if differing and not force:
            echo(
                f"error: nothing is written: {shortlist(differing, 3)} in {folder} differ from ours: look at them, and "
                "replace them with --force",
                err=True,
            )
            return 1
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SiteAgentError(f"cannot write {error.filename}: {error.strerror}") from error
    echo(f"{number(len(texts), 'file')} in {folder}: {', '.join(path.name for path in texts)}")
    echo("next: systemctl daemon-reload, and `systemctl enable` for what runs on this host")
    return 0
