# SPDX-License-Identifier: MIT
"""The real slurmrestd of a test cluster of SLURM 24.11 or later, on a loopback port, to which one logs in by JWT."""

from __future__ import annotations

import subprocess
from typing import Any

from rig import processes
from rig.slurm_cluster import SlurmCluster

# Neither root, as whom 26.05 does not start, nor SlurmUser. A new user forgets the signal at the end of its parent.
SERVED_AS = ("setpriv", "--pdeathsig=KILL", "--reuid=nobody", "--regid=nogroup", "--clear-groups")
USER = "root"
TOKEN_LIFESPAN_S = 86_400


class Slurmrestd:
    """slurmrestd of one cluster, which must be running. `options` go to it, such as `-d v0.0.45`: that version only."""

    def __init__(self, cluster: SlurmCluster, *options: str) -> None:
        self.cluster = cluster
        self._options = options
        self.port = processes.free_ports(1)[0]
        self.log = cluster.folder / "slurmrestd.out"
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def access(self) -> dict[str, Any]:
        """The settings `rest_api`, with a file that holds a token of a day."""
        token_file = self.cluster.folder / "token"
        token_file.touch(0o600)
        token_file.write_text(self.token())
        return {"url": f"http://127.0.0.1:{self.port}", "username": USER, "token_file": str(token_file)}

    def token(self, *, user: str = USER, lifespan_s: int = TOKEN_LIFESPAN_S) -> str:
        """Return what `scontrol token` prints."""
        return self.cluster.ask("scontrol", "token", f"username={user}", f"lifespan={lifespan_s}")

    def start(self) -> None:
        """Start it and wait until it listens; raises NeverCame."""
        root = self.cluster.root
        if root is None:
            raise processes.RealPartError("slurmrestd 22.05 serves no version that the agent speaks")
        self._server = processes.start(
            [
                *root.enter(self.cluster.folder),
                *SERVED_AS,
                *("/usr/sbin/slurmrestd", "-a", "rest_auth/jwt", *self._options, f"127.0.0.1:{self.port}"),
            ],
            log=self.log,
            # Its own token is none: it has those of requests.
            env={**self.cluster.env, "SLURM_JWT": "daemon"},
        )
        processes.wait_until("slurmrestd", lambda: processes.accepts(self.port), self._server, self.log)

    def stop(self) -> None:
        """Stop it. Safe to repeat."""
        processes.stop(self._server)

    def kill(self) -> None:
        """End it at once, in the middle of what it does."""
        if self._server is not None:
            self._server.kill()
            self._server.wait()
