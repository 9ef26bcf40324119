# SPDX-License-Identifier: MIT
"""From YAML and environment to frozen settings. No other package reads a dict of keys or `os.environ`."""
