# SPDX-License-Identifier: MIT
"""How a call of a stand-in program goes wrong, and the log of the calls: both only where a test has asked for them.

A rule matches calls whose line holds `needle`, after the first `skip` of these and `times` times. `when`: before or
after the command has done its work. `kill`: `self`, or `parent` for whoever started it; then it sleeps `sleep_s`, or
until the file `until` is there.
"""

from __future__ import annotations

import json
import os
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FAULTS_FILE = "faults.json"
LOG_FILE = "calls"


class Ending(Exception):
    """The program ends here, with this output and exit code."""

    def __init__(self, code: int, stdout: str, stderr: str) -> None:
        self.code, self.stdout, self.stderr = code, stdout, stderr
        super().__init__(stderr)


class Faults:
    """Rules for one call. They are counted under the lock of the state."""

    def __init__(self, folder: str, line: str) -> None:
        self._path = f"{folder}/{FAULTS_FILE}"
        self._rule = self._matching(line) if os.path.exists(self._path) else None

    def strike(self, when: str) -> None:
        """Raises Ending, or does not return, where a rule says so."""
        rule = self._rule
        if rule is None or rule.get("when", "before") != when:
            return
        if rule.get("kill"):
            os.kill(os.getppid() if rule["kill"] == "parent" else os.getpid(), signal.SIGKILL)
        time.sleep(rule.get("sleep_s", 0))
        while "until" in rule and not os.path.exists(rule["until"]):
            time.sleep(0.01)
        if "code" in rule:
            raise Ending(rule["code"], rule.get("stdout", ""), rule.get("stderr", ""))

    def _matching(self, line: str) -> dict[str, Any] | None:
        with open(self._path, encoding="utf-8") as stream:
            rules: list[dict[str, Any]] = json.load(stream)
        found = None
        for rule in rules:
            if rule.get("needle", "") not in line:
                continue
            seen = rule["seen"] = rule.get("seen", 0) + 1
            first = rule.get("skip", 0)
            if found is None and first < seen <= first + rule.get("times", 1 << 30):
                found = rule
        with open(self._path, "w", encoding="utf-8") as stream:
            json.dump(rules, stream)
        return found


def note(folder: str, *words: object) -> None:
    """Add a line to the log of calls, where there is one."""
    path = f"{folder}/{LOG_FILE}"
    if os.path.exists(path):
        with open(path, "a", encoding="utf-8") as log:
            log.write(json.dumps([os.getpid(), *words], ensure_ascii=False) + "\n")
