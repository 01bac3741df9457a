# SPDX-License-Identifier: Apache-2.0
"""A server with few threads keeps one for requests that do not wait for hosts."""

import os
import pathlib
import subprocess
import sys

import pytest

#: stands in for the module that the server puts into its processes
LOAD = """
import sys, types
server = types.ModuleType({module!r})
server.__dict__.update({facts!r})
server.worker_id = lambda: 0
sys.modules[{module!r}] = server
import cyborg.wsgi.api
print(cyborg.wsgi.api._conf.api.max_waiting_binds)
"""


@pytest.mark.parametrize(
    ('module', 'facts', 'waiting'),
    [
        # kolla-ansible's uWSGI, which has the option only if it is set
        ('uwsgi', {'opt': {}}, 0),
        ('uwsgi', {'opt': {'threads': b'3'}}, 2),
        ('uwsgi', {'opt': {'threads': b'8'}}, 4),
        # mod_wsgi as RHOSO has it
        ('mod_wsgi', {'threads_per_process': 1}, 0),
        ('another_server', {}, 4),
    ],
)
def test_binds_do_not_wait_in_the_last_thread(module, facts, waiting, tmp_path):
    options = tmp_path / '.cyborg/cyborg.conf'
    options.parent.mkdir()
    options.write_text(
        '[DEFAULT]\ntransport_url = kombu+memory:////\n[keystone_authtoken]\nauth_type = none\n'
    )
    loaded = subprocess.run(
        [sys.executable, '-c', LOAD.format(module=module, facts=facts)],
        env=os.environ | {'HOME': str(tmp_path)},
        cwd=pathlib.Path(__file__).parents[3],
        text=True,
        capture_output=True,
    )
    assert loaded.stdout == f'{waiting}\n', loaded.stderr
    assert ('more threads' in loaded.stderr) is (waiting < 4)


#: builds the service of cyborg-api, twice as its launcher does
BUILD = """
from cyborg.cmd import api, startup
conf = startup.configure()
for _ in range(2):
    api.ApiService(conf)
print(conf.api.max_waiting_binds)
"""


# openstack-helm sets three
@pytest.mark.parametrize(('workers', 'waiting'), [(1, 0), (3, 2), (8, 4)])
def test_binds_do_not_wait_in_the_last_thread_of_our_own_server(workers, waiting, tmp_path):
    options = tmp_path / 'cyborg.conf'
    options.write_text(
        '[DEFAULT]\ntransport_url = kombu+memory:////\n[keystone_authtoken]\nauth_type = none\n'
        f'[api]\napi_workers = {workers}\n'
    )
    built = subprocess.run(
        [sys.executable, '-c', BUILD, '--config-file', options],
        cwd=pathlib.Path(__file__).parents[3],
        text=True,
        capture_output=True,
    )
    assert built.stdout == f'{waiting}\n', built.stderr
    assert built.stderr.count('Set [api] api_workers to more than') == (waiting < 4)
