# SPDX-License-Identifier: MIT
"""Orders that are not finished and why, and another try of them."""

from __future__ import annotations

from http import HTTPStatus

from tornado.web import HTTPError

from agent.cli import full_passes
from agent.cli.web.acts import Act
from agent.config.model import Mode, Offering
from agent.run.diagnosis import picture
from agent.run.diagnosis.picture import OfferingStatus, StuckOrder
from agent.state import journal

ORDERS_SHOWN = 300


class Orders(Act):
    async def get(self) -> None:
        console = self.console
        broker = await console.broker()
        found = await console.do(
            lambda: picture.of_site(console.settings, console.settings.offerings, broker).offerings
        )
        self.show("console_orders", found=found, marks=_marks, shown=ORDERS_SHOWN)

    async def post(self) -> None:
        by, reason = self.operator(), self.reason()
        offering, order = self.offering(self.get_body_argument("offering")), self.get_body_argument("order")
        await self.console.act(lambda: self._retry(offering, order, by=by, reason=reason))
        self.done("/orders")

    def _retry(self, offering: Offering, uuid: str, *, by: str, reason: str) -> None:
        """Queue a pass over the orders of the offering, of which this is one, as a pass does them all. Raises
        HTTPError where the order is not as the person has seen it.
        """
        settings = self.console.settings
        (found,) = picture.of_site(settings, [offering]).offerings
        order = next((each for each in found.stuck if each.uuid == uuid), None)
        if order is None:
            raise HTTPError(HTTPStatus.CONFLICT, "this order does not wait any more: it is done, or gone")
        if not self.has_shown(now := _mark(order)):
            raise HTTPError(HTTPStatus.CONFLICT, f"a pass has tried it meanwhile, and now it is: {now}")
        full_passes.start(settings, offering, {Mode.ORDER_PROCESS})
        text = f"asked for another try of {order.type} order {order.uuid} ({reason})"
        journal.note(settings.state_dir, offering, text, by=by, mode=Mode.ORDER_PROCESS)


def _mark(order: StuckOrder) -> str:
    return f"{order.result}, {order.message}"


def _marks(found: OfferingStatus) -> dict[str, str]:
    return {order.uuid: _mark(order) for order in found.stuck}


ROUTES = [("/orders", Orders)]
