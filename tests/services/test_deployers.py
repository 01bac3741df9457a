# SPDX-License-Identifier: Apache-2.0
"""Services on the queues and the pool of connections that kolla-ansible configures."""

import os
import pathlib
import re

import pytest

from tests.fixtures import deployers
from tests.fixtures.cloud import eventually
from tests.fixtures.processes import Deployment

FPGA = {'resources:FPGA': '1', 'trait:CUSTOM_FAKE_DEVICE': 'required'}
FILE = (deployers.HERE / 'kolla-ansible/cyborg.conf').read_text()


def section(name):
    [found] = re.findall(rf'^\[{name}\]\n(?:[a-z].*\n)+', FILE, re.MULTILINE)
    return found


#: quorum queues, a stream for what all receive, the queue manager
QUEUES = section('oslo_messaging_rabbit')
#: one connection; where the database is, the test knows
POOL = re.sub('^connection = .*\n', '', section('database'), flags=re.MULTILINE)


@pytest.fixture
def deployment(tmp_path, broker, database):
    with Deployment(
        tmp_path, broker.url, database.url, conductor=QUEUES + POOL, api=QUEUES
    ) as made:
        made.start()
        yield made


def ports_of(pid):
    """The ports that a process is connected to, as `ss -ntp` lists them."""
    inodes = {
        link[len('socket:[') : -1]
        for link in map(link_of, pathlib.Path(f'/proc/{pid}/fd').iterdir())
        if link.startswith('socket:[')
    }
    for line in pathlib.Path(f'/proc/{pid}/net/tcp').read_text().splitlines()[1:]:
        fields = line.split()
        if fields[9] in inodes:
            yield int(fields[2].rpartition(':')[2], 16)


def link_of(path):
    try:
        return os.readlink(path)
    except FileNotFoundError:  # closed meanwhile
        return ''


def test_a_server_gets_its_accelerator_with_the_options_of_kolla_ansible(deployment, broker):
    # given a host, and a profile
    deployment.host(more=QUEUES)
    deployment.profile('one', FPGA)
    # when Nova binds a request
    assert deployment.bind(deployment.request('one')).status_code == 202
    # then it hears of it, over queues of any kind
    [event] = deployment.nova.wait_for_events(1)
    assert event['status'] == 'completed'
    # and the health check of the containers finds the broker's port
    port = int(broker.url.rpartition('@')[2].strip('/').partition('/')[0].rpartition(':')[2])
    for process in (*deployment.conductors, *deployment.agents.values()):
        eventually(lambda p=process: port in {n for pid in p.workers for n in ports_of(pid)})
