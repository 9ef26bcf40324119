# SPDX-License-Identifier: MIT
"""A client of `simulator.fork_server` in Perl: 2 ms of processor time for each call instead of 8 of Python's own start,
and the tests make thousands of calls. Where there is no Perl, or another kind of processor, that of Python is written.
"""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

from simulator import fork_server

# sendmsg, which Perl has no name for.
SENDMSG = {"x86_64": 46, "aarch64": 211}.get(platform.machine())
PERL = shutil.which("perl")
# The request is what fork_server.CLIENT sends. 28 bytes: SOL_SOCKET, SCM_RIGHTS, and the numbers of three streams.
CLIENT = """#!{perl}
$SIG{{INT}} = "DEFAULT";
@program = ({words}@ARGV);
@words = (readlink("/proc/self/cwd"), scalar(@program), @program, map {{ "$_=$ENV{{$_}}" }} keys %ENV);
$request = join "\\0", @words;
socket(SERVER, 1, 1, 0) && chdir({folder}) && connect(SERVER, pack("Sa*", 1, {name})) || die "fork_server: $!";
$size = pack("Q", length $request);
$part = pack("PQ", $size, {size});
$streams = pack("Ql5x4", 28, 1, 1, 0, 1, 2);
$message = pack("Qx8PQPQx8", 0, $part, 1, $streams, 32);
syscall({sendmsg}, fileno(SERVER), $message, 0) == {size} || die "fork_server: $!";
syswrite(SERVER, $request);
sysread(SERVER, $pid, {number});
$code = sysread(SERVER, $answer, {number}) == {number} ? unpack("l", $answer) : 1;
kill(-$code, $$) if $code < 0;
exit $code;
"""


def write_client(client: Path, place: Path, *words: str) -> None:
    """Make a program as `fork_server.write_client` does."""
    if PERL is None or SENDMSG is None:
        fork_server.write_client(client, place, *words)
        return
    text = CLIENT.format(
        perl=PERL,
        words="".join(f"{_quoted(word)}, " for word in words),
        folder=_quoted(str(place.parent)),
        name=_quoted(place.name),
        sendmsg=SENDMSG,
        size=fork_server.SIZE_BYTES,
        number=fork_server.NUMBER_BYTES,
    )
    client.write_text(text, encoding="utf-8")
    client.chmod(0o755)


def _quoted(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
