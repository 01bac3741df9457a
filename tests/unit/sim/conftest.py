# SPDX-License-Identifier: Apache-2.0
"""A simulated host, what happens on it, and how it answers writes."""

import pytest

from cyborg.sim import Host


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path / 'sys')


@pytest.fixture
def events(host):
    """What udev would have told since the test began: (action, subsystem, device)."""
    heard = []
    host.subscribe(lambda event: heard.append((event.action, event.subsystem, event.device)))
    return heard


@pytest.fixture
def answer(host):
    """Write, and answer with the error number, None if there was none."""

    def answer(name, text):
        try:
            host.sysfs.write(name, text)
        except OSError as error:
            return error.errno
        return None

    return answer
