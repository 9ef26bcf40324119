# SPDX-License-Identifier: MIT
"""For authors of backends and for tests: a backend in memory. Nothing that runs imports it."""
