# SPDX-License-Identifier: MIT
"""The command `console`: the page of status behind a login, and the approval of held plans."""
