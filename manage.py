#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
if __name__ == "__main__":
    try:
        from agent.cli.main import main

        main()
    except KeyboardInterrupt:  # before the program is loaded, or at its very end
        raise SystemExit(130) from None
