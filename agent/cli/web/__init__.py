# SPDX-License-Identifier: MIT
"""The command `console`: pages behind a login, and what an operator does there."""
