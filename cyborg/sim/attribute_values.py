# SPDX-License-Identifier: Apache-2.0
"""Parses values that are written to sysfs attributes, by the kernel's rules."""

import errno

from cyborg.sim.tree import kernel_error


def parse_unsigned(text: str) -> int:
    """Parse an unsigned integer as kstrtouint with base 0 does; raises EINVAL."""
    try:
        value = int(text, 0)
    except ValueError:
        value = -1
    if value < 0:
        raise kernel_error(errno.EINVAL)
    return value


def parse_bool(text: str) -> str:
    """Parse a boolean as kstrtobool does and return '1' or '0'; raises EINVAL."""
    if text[:1] in ('y', 'Y', 't', 'T', '1') or text[:2].lower() == 'on':
        return '1'
    if text[:1] in ('n', 'N', 'f', 'F', '0') or text[:2].lower() == 'of':
        return '0'
    raise kernel_error(errno.EINVAL)
