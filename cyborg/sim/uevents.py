# SPDX-License-Identifier: Apache-2.0
"""Real kernel events of simulated devices, told to whoever listens in this network namespace."""

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
    """Hands events to the kernel, which sends them on as its own (Linux 4.18). That needs
    CAP_SYS_ADMIN in the user namespace that the network namespace belongs to."""

    def __init__(self) -> None:
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_KOBJECT_UEVENT)
        self._socket.bind((0, 0))
        self._lock = threading.Lock()

    def send(self, uevent: Uevent) -> None:
        """Tell; what the kernel has against it rises as OSError."""
        event = uevent.event
        facts = {'ACTION': event.action, 'DEVPATH': f'/{uevent.path}',
                 'SUBSYSTEM': event.subsystem} | dict(uevent.properties)
        words = [f'{event.action}@/{uevent.path}', *(f'{key}={facts[key]}' for key in facts)]
        body = b''.join(word.encode() + b'\0' for word in words)
        head = HEADER.pack(HEADER.size + len(body), MESSAGE, REQUEST | ACKNOWLEDGE, 0, 0)
        with self._lock:
            self._socket.sendto(head + body, KERNEL)
            answer = self._socket.recv(4096)
        [number] = struct.unpack_from('=i', answer, HEADER.size)
        if number:
            raise OSError(-number, os.strerror(-number))
