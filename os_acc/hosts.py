# SPDX-License-Identifier: Apache-2.0
"""What this host is called."""

import socket


def node_name() -> str:
    """What libvirt, and thus Nova, calls this host: its name made fully qualified, if that can
    be done. A name that leads to localhost would be that of every host.

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
