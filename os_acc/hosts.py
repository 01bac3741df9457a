# SPDX-License-Identifier: Apache-2.0
"""The name of this host."""

import socket


def node_name() -> str:
    """Returns the name that libvirt, and thus Nova, has for this host: its fully qualified name
    if there is one. A name that resolves to localhost is not used, because every host has it.

    >>> node_name().startswith(socket.gethostname())
    True
    """
    name = socket.gethostname()
    if '.' in name or name.startswith('localhost'):
        return name
    try:
        [found, *_] = socket.getaddrinfo(name, None, flags=socket.AI_CANONNAME)
    except OSError:
        return name
    qualified = found[3]
    return name if not qualified or qualified.startswith('localhost') else qualified
