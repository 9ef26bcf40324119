# SPDX-License-Identifier: MIT
"""From YAML and environment to frozen settings. Below here nobody sees a dict of keys or `os.environ`."""
