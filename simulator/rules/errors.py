# SPDX-License-Identifier: MIT
"""The refusals of the simulated API, in the shapes the real server uses; handlers raise them.

Wording is ours except for the framework's own one-liners: a client may rely on status and shape only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

NOT_FOUND_PAGE = (
    "<!doctype html><html><head><title>Not Found</title></head><body><h1>Not Found</h1></body></html>"
)
SERVER_ERROR_PAGE = (
    "<!doctype html><html><head><title>Server Error (500)</title></head>"
    "<body><h1>Server Error (500)</h1></body></html>"
)


class ApiError(Exception):
    """An answer other than success: `body` is JSON, or an HTML page when `is_page`."""

    def __init__(
        self, status: int, body: Any, *, is_page: bool = False, headers: dict[str, str] | None = None
    ):
        super().__init__(f"{status}: {body}")
        self.status = status
        self.body = body
        self.is_page = is_page
        self.headers = headers or {}


def detail(status: int, text: str, **headers: str) -> ApiError:
    return ApiError(status, {"detail": text}, headers=headers)


def unauthenticated(text: str) -> ApiError:
    return ApiError(401, {"detail": text}, headers={"WWW-Authenticate": "Token"})


def forbidden() -> ApiError:
    return detail(403, "You do not have permission to perform this action.")


def unknown_object(kind: str) -> ApiError:
    """Return a 404: the object is missing, or the caller may not see it; the server does not say which."""
    return detail(404, f"No {kind} matches the given query.")


def wrong_state(allowed: Iterable[str]) -> ApiError:
    return detail(409, f"Allowed states: {', '.join(allowed)}.")


def method_not_allowed(method: str) -> ApiError:
    return detail(405, f'Method "{method}" not allowed.')


def bad_field(name: str, *messages: str) -> ApiError:
    return ApiError(400, {name: list(messages)})


def bad_request(text: str) -> ApiError:
    """Return a refusal from the body of a view: a bare list of one text."""
    return ApiError(400, [text])


def bad_combination(text: str) -> ApiError:
    return bad_field("non_field_errors", text)


def missing_page() -> ApiError:
    """Return the 404 of an unknown path: an HTML page, not JSON."""
    return ApiError(404, NOT_FOUND_PAGE, is_page=True)


def crash() -> ApiError:
    """Return a crash of the server: an HTML page with status 500."""
    return ApiError(500, SERVER_ERROR_PAGE, is_page=True)
