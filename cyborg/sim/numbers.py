# SPDX-License-Identifier: Apache-2.0
"""Numbers as the kernel takes them from those who write to sysfs."""

import errno

from cyborg.sim.tree import refuse


def natural(text: str) -> int:
    """A number that is not negative, as the kernel reads it."""
    try:
        found = int(text, 0)
    except ValueError:
        found = -1
    if found < 0:
        raise refuse(errno.EINVAL)
    return found


def refuse_interrupts(text: str) -> None:
    """Few drivers let the interrupts of a virtual function be counted anew."""
    natural(text)
    raise refuse(errno.EOPNOTSUPP)


def truth(text: str) -> str:
    """1 or 0, for all the ways to say that."""
    if text[:1] in ('y', 'Y', 't', 'T', '1') or text[:2].lower() == 'on':
        return '1'
    if text[:1] in ('n', 'N', 'f', 'F', '0') or text[:2].lower() == 'of':
        return '0'
    raise refuse(errno.EINVAL)


def route(address: str, offset: int) -> str:
    """The address that lies so many routing ids further."""
    domain, bus, rest = address.split(':')
    device, function = rest.split('.')
    place = (int(bus, 16) << 8) + (int(device, 16) << 3) + int(function) + offset
    return f'{domain}:{place >> 8:02x}:{place >> 3 & 0x1f:02x}.{place & 7}'
