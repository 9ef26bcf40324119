# SPDX-License-Identifier: MIT
"""Reports of usage by a backend of waldur-site-agent, the reference, in a virtual environment of its own."""
