# SPDX-License-Identifier: MIT
pytest_plugins = ["backends.testing.plugin"]
