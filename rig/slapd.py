# SPDX-License-Identifier: MIT
"""A real OpenLDAP server (Debian's slapd) on free loopback ports, in a folder of its own.

Serves ldap:// with StartTLS and ldaps://, with a certificate for `localhost` that it makes itself. The agent's login
may write below the base, and is no root of the database: limits and access rights count for it.
"""

import os
import shutil
import signal
import subprocess
from pathlib import Path

from rig import processes, run_servers
from rig.certificate import make_certificate
from rig.processes import RealPartError

BASE = "dc=example,dc=org"
ROOT = f"cn=admin,{BASE}"
AGENT = f"cn=agent,{BASE}"
PASSWORD = "not-a-secret"

# A group as rfc2307bis has it: posixGroup goes with groupOfNames. Debian's nis.schema does not allow that.
AUXILIARY_GROUP = """
objectclass ( 1.3.6.1.4.1.99999.1 NAME 'posixNumbers' SUP top AUXILIARY
  DESC 'what posixGroup holds, next to another class' MUST gidNumber MAY ( memberUid $ description ) )
"""

CONFIG = """
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/nis.schema
include /etc/ldap/schema/inetorgperson.schema
include {folder}/own.schema
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile {folder}/slapd.pid
argsfile {folder}/slapd.args
TLSCertificateFile {folder}/cert.pem
TLSCertificateKeyFile {folder}/key.pem
{security}
database mdb
suffix "{base}"
rootdn "{root}"
rootpw {password}
directory {folder}/data
dbnosync
index objectClass,uid,cn,mail,uidNumber,gidNumber,memberUid eq
sizelimit {size_limit}
access to * by dn.exact="{agent}" write by * auth
"""

TREE = f"""
dn: {BASE}
objectClass: dcObject
objectClass: organization
o: Example
dc: example

dn: {AGENT}
objectClass: organizationalRole
objectClass: simpleSecurityObject
cn: agent
userPassword: {PASSWORD}

dn: ou=People,{BASE}
objectClass: organizationalUnit
ou: People

dn: ou=Groups,{BASE}
objectClass: organizationalUnit
ou: Groups
"""


class Slapd:
    """One server; `start` may be called again after `kill` or `stop` and keeps ports and data.

    `needs_tls`: a login without TLS is refused. `size_limit`: entries in one answer.
    """

    def __init__(self, folder: Path, *, needs_tls: bool = False, size_limit: int = 500) -> None:
        self.folder = folder
        self.port, self.tls_port = processes.free_ports(2)
        self._needs_tls = needs_tls
        self._size_limit = size_limit
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"ldap://localhost:{self.port}"

    @property
    def tls_url(self) -> str:
        return f"ldaps://localhost:{self.tls_port}"

    @property
    def certificate(self) -> Path:
        """Path of the certificate, which is its own CA."""
        return self.folder / "cert.pem"

    @property
    def log(self) -> Path:
        return self.folder / "slapd.log"

    def start(self) -> None:
        """Start and wait until it answers, with an empty tree when it is new; raises NeverCame."""
        if not (self.folder / "data").exists():
            self._prepare()
        urls = f"ldap://127.0.0.1:{self.port}/ ldaps://127.0.0.1:{self.tls_port}/"
        self._server = processes.start(
            # 256: connections, operations and results, for tests that count them
            [processes.program("slapd"), "-f", str(self.folder / "slapd.conf"), "-h", urls, "-d", "256"],
            log=self.log,
            env=os.environ,
        )
        processes.wait_until(
            "slapd",
            lambda: processes.accepts(self.port) and processes.accepts(self.tls_port),
            self._server,
            self.log,
        )

    def operations(self, word: str) -> int:
        """Return how many lines of the log hold a word such as `BIND dn=`, `SRCH base=` or `STARTTLS`."""
        return self.log.read_text(errors="replace").count(word)

    def kill(self) -> None:
        """End it at once (SIGKILL), as a crash would."""
        if self._server is None or self._server.poll() is not None:
            raise RealPartError("slapd is not running")
        os.kill(self._server.pid, signal.SIGKILL)
        self.stop()

    def stop(self) -> None:
        """End it in an orderly way. Safe to repeat."""
        processes.stop(self._server)
        self._server = None

    def _prepare(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        make_certificate(self.folder)
        self._configure()
        shutil.copytree(run_servers.made("slapd", _make_empty_tree) / "data", self.folder / "data")

    def _configure(self) -> None:
        (self.folder / "own.schema").write_text(AUXILIARY_GROUP)
        (self.folder / "slapd.conf").write_text(
            CONFIG.format(
                folder=self.folder, base=BASE, root=ROOT, agent=AGENT, password=PASSWORD,
                security="security simple_bind=128" if self._needs_tls else "",
                size_limit=self._size_limit,
            )
        )  # fmt: skip


def _make_empty_tree(folder: Path) -> None:
    """Make the database of an empty tree, which new servers copy: to make it takes half as long as a server."""
    make_certificate(folder)
    Slapd(folder)._configure()
    (folder / "data").mkdir()
    (folder / "tree.ldif").write_text(TREE)
    slapadd = [
        processes.program("slapadd"),
        "-f",
        str(folder / "slapd.conf"),
        "-l",
        str(folder / "tree.ldif"),
    ]
    done = subprocess.run(slapadd, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        raise RealPartError(f"slapadd: {done.stderr[-500:]}")
