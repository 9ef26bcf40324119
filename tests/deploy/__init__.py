# SPDX-License-Identifier: MIT
"""What a site installs besides the package: units, the image and the compose file."""
