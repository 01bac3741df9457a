# SPDX-License-Identifier: Apache-2.0
"""The port of metrics is open before the first request, in a process that serves requests."""

import os
import pathlib
import subprocess
import sys

import pytest

from tools.services.server import free_port

#: stands in for the module that the server puts into its processes
LOAD = """
import socket, sys, types
server = types.ModuleType({module!r})
server.threads_per_process, server.opt = 8, {{'threads': b'8'}}
server.worker_id = lambda: {worker}
called = []
if {has_hook}:
    server.post_fork_hook = lambda: called.append('other')
sys.modules[{module!r}] = server

def is_open():
    with socket.socket() as client:
        return client.connect_ex(('127.0.0.1', {port})) == 0

import cyborg.wsgi.api
print('loaded', is_open())
if {module!r} == 'uwsgi' and hasattr(server, 'post_fork_hook'):
    server.post_fork_hook()
    print('forked', is_open(), *called)
"""


@pytest.mark.parametrize(
    ('module', 'worker', 'has_hook', 'said'),
    [
        pytest.param('uwsgi', 1, False, ['loaded True'], id='lazy-apps'),
        pytest.param('uwsgi', 0, False, ['loaded False', 'forked True'], id='forks afterwards'),
        pytest.param('uwsgi', 0, True, ['loaded False', 'forked True other'], id='other hooks'),
        pytest.param('mod_wsgi', 0, False, ['loaded True'], id='mod_wsgi'),
        pytest.param('another_server', 0, False, ['loaded False'], id='another server'),
    ],
)
def test_the_port_is_open_as_soon_as_the_process_serves(module, worker, has_hook, said, tmp_path):
    port = free_port()
    options = tmp_path / '.cyborg/cyborg.conf'
    options.parent.mkdir()
    options.write_text(
        '[DEFAULT]\ntransport_url = kombu+memory:////\n[keystone_authtoken]\nauth_type = none\n'
        f'[api]\nmetrics_port = {port}\n'
    )
    code = LOAD.format(module=module, worker=worker, has_hook=has_hook, port=port)
    loaded = subprocess.run(
        [sys.executable, '-c', code],
        env=os.environ | {'HOME': str(tmp_path)},
        cwd=pathlib.Path(__file__).parents[3],
        text=True,
        capture_output=True,
    )
    assert loaded.stdout.splitlines() == said, loaded.stderr
