# SPDX-License-Identifier: MIT
"""Run the programs of another SLURM generation from a Debian root below one folder (`slurm-root.sh` makes it).

A holder process keeps a namespace with the root and the machine's temporary files (`in-root.sh`). Commands and servers
enter it.
"""

import os
import subprocess
import tempfile
from pathlib import Path

from rig import processes
from rig.parts import SLURM_COMMANDS, SLURM_ROOTS, SLURM_SUITES

# The kernel adds the path by which the command was called, and its arguments. The program is at that path inside.
COMMAND = "#!/usr/sbin/chroot /proc/{holder}/root\n"

# A job runs in the folder of its submission, which chroot leaves.
SUBMISSION = """\
#!/bin/sh
# Only temporary files are there inside.
case $PWD in {temporary}/*) folder=$PWD ;; *) folder=/ ;; esac
exec {enter} /usr/bin/sbatch "$@"
"""


def in_root(root: Path, *command: str) -> list[str]:
    """Return what runs a command in a Debian root, with the machine's temporary files."""
    temporary = tempfile.gettempdir()
    return [str(processes.REPOSITORY / "rig/in-root.sh"), str(root), temporary, temporary, *command]


class SlurmRoot:
    """The programs of one generation for one cluster, with a folder of scripts that stand for its commands."""

    def __init__(self, generation: str, folder: Path) -> None:
        self.root = SLURM_ROOTS / SLURM_SUITES[generation]
        self.bin = folder / "bin"
        self._log = folder / f"root-{generation}.out"
        self._holder: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Make the namespace and the scripts; raises NeverCame."""
        self.bin.mkdir(exist_ok=True)
        hold = 'mount --bind /usr/bin "$0" && echo held && exec sleep infinity'
        self._holder = processes.start(
            in_root(self.root, "sh", "-c", hold, str(self.bin)), log=self._log, env=os.environ
        )
        processes.wait_until(
            "a root of SLURM", lambda: "held" in processes.tail(self._log), self._holder, self._log
        )
        enter = " ".join(self.enter(Path('"$folder"')))
        scripts = dict.fromkeys(SLURM_COMMANDS, COMMAND.format(holder=self._holder.pid))
        scripts["sbatch"] = SUBMISSION.format(temporary=tempfile.gettempdir(), enter=enter)
        for name, text in scripts.items():
            script = self.bin / name
            script.write_text(text)
            script.chmod(0o755)

    def enter(self, folder: Path) -> list[str]:
        """Return what runs a program inside, in a folder, when its path and arguments follow."""
        if self._holder is None:
            raise processes.RealPartError(f"the root {self.root} was not started")
        return ["nsenter", f"--target={self._holder.pid}", "--mount", "--root", f"--wdns={folder}"]

    def stop(self) -> None:
        """End the namespace."""
        processes.stop(self._holder)
