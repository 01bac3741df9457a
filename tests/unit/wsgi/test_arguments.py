# SPDX-License-Identifier: Apache-2.0
"""The API reads its own arguments, and not those of the server that loads it."""

import os
import pathlib
import subprocess
import sys

import pytest

#: stands in for the module that the server puts into its processes
LOAD = """
import sys, types
server = types.ModuleType({module!r})
server.threads_per_process, server.opt = 8, {{'threads': b'8'}}
server.worker_id = lambda: 0
sys.modules[{module!r}] = server
import cyborg.wsgi.api
print(cyborg.wsgi.api._conf.api.max_waiting_binds)
"""
#: the first argument is the name of the server
NAMED = """
import sys
sys.argv = ['uwsgi']
import cyborg.wsgi.api
print(cyborg.wsgi.api._conf.oslo_messaging_rabbit.processname)
"""
OPTIONS = """[DEFAULT]
transport_url = kombu+memory:////
[keystone_authtoken]
auth_type = none
[api]
max_waiting_binds = {waiting}
"""


def load(module, home, *arguments):
    """Load the API as a server does, and print how many binds wait."""
    return run(LOAD.format(module=module), home, *arguments)


def run(code, home, *arguments):
    """Run code with a file in a default place, which lets two binds wait."""
    (home / '.cyborg').mkdir()
    (home / '.cyborg/cyborg.conf').write_text(OPTIONS.format(waiting=2))
    return subprocess.run(
        [sys.executable, '-c', code, *arguments],
        env=os.environ | {'HOME': str(home)},
        cwd=pathlib.Path(__file__).parents[3],
        text=True,
        capture_output=True,
    )


def test_in_uwsgi_the_arguments_are_those_of_pyargv(tmp_path):
    named = tmp_path / 'named.conf'
    named.write_text(OPTIONS.format(waiting=3))
    loaded = load('uwsgi', tmp_path, '--config-file', named)
    assert loaded.stdout == '3\n', loaded.stderr


@pytest.mark.parametrize(
    ('module', 'arguments'),
    [
        ('uwsgi', ()),  # without pyargv
        ('mod_wsgi', ()),
        ('mod_wsgi', ('-DFOREGROUND',)),
        ('waitress', ('--listen=127.0.0.1:6666', 'cyborg.wsgi.api:application')),
        ('gunicorn', ('-w', '2', 'cyborg.wsgi.api:application')),
    ],
)
def test_otherwise_the_files_are_in_the_default_places(module, arguments, tmp_path):
    loaded = load(module, tmp_path, *arguments)
    assert loaded.stdout == '2\n', loaded.stderr


def test_the_queue_manager_does_not_take_the_name_of_the_server(tmp_path):
    loaded = run(NAMED, tmp_path)
    assert loaded.stdout == 'cyborg-api\n', loaded.stderr
