# SPDX-License-Identifier: Apache-2.0
"""``python -m tools.fleet``: see tools.fleet.command."""

import sys

from tools.fleet.command import main

if __name__ == '__main__':  # spawned processes import this module, too
    sys.exit(main())
