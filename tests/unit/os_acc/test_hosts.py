# SPDX-License-Identifier: Apache-2.0
"""The name of a host, as libvirt has it."""

import socket

import pytest

from os_acc import hosts


@pytest.mark.parametrize(
    ('own', 'canonical', 'name'),
    [
        ('compute1', 'compute1.example.org', 'compute1.example.org'),
        ('compute1.example.org', 'other.example.org', 'compute1.example.org'),
        ('compute1', 'localhost', 'compute1'),
        ('compute1', 'localhost.localdomain', 'compute1'),
        ('compute1', '', 'compute1'),
        ('compute1', None, 'compute1'),
        ('localhost', 'compute1.example.org', 'localhost'),
    ],
)
def test_a_host_is_called_what_nova_calls_it(own, canonical, name, monkeypatch):
    def look_up(host, port, flags):
        assert (host, flags) == (own, socket.AI_CANONNAME)
        if canonical is None:
            raise socket.gaierror('Name or service not known')
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, canonical, ('192.0.2.1', 0)),
            (socket.AF_INET, socket.SOCK_DGRAM, 17, '', ('192.0.2.1', 0)),
        ]

    monkeypatch.setattr(socket, 'gethostname', lambda: own)
    monkeypatch.setattr(socket, 'getaddrinfo', look_up)
    assert hosts.node_name() == name
