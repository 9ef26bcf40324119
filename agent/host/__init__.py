# SPDX-License-Identifier: MIT
"""Files and folders on this host, with the rights of their owner. Used by all that writes below `state_dir`."""
