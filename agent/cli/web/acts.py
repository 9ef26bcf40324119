# SPDX-License-Identifier: MIT
"""What an operator does on a page: by the functions of the commands, and in the journal under the person's name."""

from __future__ import annotations

from http import HTTPStatus

from tornado.web import HTTPError

from agent.cli.web.handler import Handler
from agent.cli.web.roles import Role
from agent.config.model import Offering
from agent.core.printable import printable

LONGEST_REASON = 500


class Act(Handler):
    """A page on which an operator can do something."""

    def operator(self) -> str:
        """Return who does it, for the journal. Raises HTTPError for a viewer."""
        if self.login is None or self.login.role is not Role.OPERATOR:
            raise HTTPError(HTTPStatus.FORBIDDEN, "you may look: only an operator does this")
        return f"{self.login.name} (console)"

    def reason(self) -> str:
        """Return why it is done. Raises HTTPError where nothing is said."""
        found = " ".join(self.get_body_argument("reason").split())[:LONGEST_REASON]
        if not found:
            raise HTTPError(HTTPStatus.BAD_REQUEST, "say why: the journal has it beside your name")
        return found

    def has_shown(self, now: str) -> bool:
        """Return whether the page said this, as pages and forms write it: printable, and without blanks at its ends."""
        return printable(now).strip() == self.get_body_argument("shown", "")

    def offering(self, offering_uuid: str) -> Offering:
        """Return an offering of the configuration. Raises HTTPError."""
        found = self.console.settings.offering(offering_uuid)
        if found is None:
            raise HTTPError(HTTPStatus.NOT_FOUND, "the configuration has no such offering")
        return found

    def done(self, path: str) -> None:
        """Show the page again, as it is now."""
        self.redirect(path, status=HTTPStatus.SEE_OTHER)
