# SPDX-License-Identifier: Apache-2.0
"""Sends real kernel events of simulated devices in this network namespace."""

import os
import socket
import struct
import threading

from cyborg.sim.tree import Uevent

NETLINK_KOBJECT_UEVENT = 15
HEADER = struct.Struct('=IHHII')  #: length, type, flags, sequence, port
MESSAGE, REQUEST, ACKNOWLEDGE = 16, 1, 4
KERNEL = (0, 0)


class Sender:
    """Passes events to the kernel, which broadcasts them as its own (since Linux 4.18). This needs
    CAP_SYS_ADMIN in the user namespace that owns the network namespace."""

    def __init__(self) -> None:
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_KOBJECT_UEVENT
        )
        self._socket.bind((0, 0))
        self._lock = threading.Lock()

    def send(self, uevent: Uevent) -> None:
        """Send an event; raises OSError if the kernel refuses it."""
        event = uevent.event
        facts = {
            'ACTION': event.action,
            'DEVPATH': f'/{uevent.path}',
            'SUBSYSTEM': event.subsystem,
        } | dict(uevent.properties)
        words = [f'{event.action}@/{uevent.path}', *(f'{key}={facts[key]}' for key in facts)]
        body = b''.join(word.encode() + b'\0' for word in words)
        head = HEADER.pack(HEADER.size + len(body), MESSAGE, REQUEST | ACKNOWLEDGE, 0, 0)
        with self._lock:
            self._socket.sendto(head + body, KERNEL)
            response = self._socket.recv(4096)
        [number] = struct.unpack_from('=i', response, HEADER.size)
        if number:
            raise OSError(-number, os.strerror(-number))
