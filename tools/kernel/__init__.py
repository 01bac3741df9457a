# SPDX-License-Identifier: Apache-2.0
"""Boots the kernel of this Debian in QEMU with this machine's files, to test the simulator.

Everything that is fetched or built stays in ``build/kernel``. ``Missing`` says what cannot be
had here, ``Failed`` what went wrong with it.
"""

from tools.kernel.debian import Failed, Kernel
from tools.kernel.guest import Guest, run
from tools.services.packages import Missing

__all__ = ['Failed', 'Guest', 'Kernel', 'Missing', 'run']
