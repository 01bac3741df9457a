# SPDX-License-Identifier: Apache-2.0
"""Our services start with the files and in the way of the tools that deploy OpenStack."""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import certifi
import pytest
import requests

from tests.fixtures import deployers
from tests.fixtures.cloud import eventually
from tests.fixtures.processes import BIN, PATIENCE, Process, is_there
from tools.services.server import free_port

pytestmark = pytest.mark.embedded

#: a port on which nobody listens: services must start before Keystone does
KEYSTONE = 'http://127.0.0.1:1/v3'
#: what uWSGI and mod_wsgi do, by waitress: load a module or a file, without arguments
SERVE_WSGI = """
import importlib.util, sys, waitress
name, place, port = sys.argv[1:]
sys.argv[1:] = []
if place == '-':
    import cyborg.wsgi.api as module
else:
    spec = importlib.util.spec_from_file_location(name, place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
waitress.serve(module.application, listen=f'127.0.0.1:{port}')
"""
#: the users of their images
KOLLA = RHOSO = 42483
OPENSTACK_HELM = 42424
#: what fluentd of kolla-ansible parses: oslo.log's own form
LINE = re.compile(r'^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \d+ [A-Z]+ [\w.]+ \[')


class Tool:
    """A deployment tool, and the services that it runs."""

    def __init__(self, directory):
        self.directory = directory
        self.user = os.geteuid()
        self.port = free_port()
        self.url = f'http://127.0.0.1:{self.port}'
        self.home = directory / 'home'
        self._stack = contextlib.ExitStack()
        (directory / 'log/kolla/cyborg').mkdir(parents=True)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._stack.close()

    def write(self, name, directory=None, log_file=None):
        """Write a file where services look without being told; /etc/cyborg is not ours."""
        return deployers.write(
            name,
            directory or self.home / '.cyborg',
            directory=str(self.directory),
            transport='kombu+memory:////',
            database=f'sqlite:///{self.directory}/cyborg.db',
            keystone=KEYSTONE,
            port=str(self.port),
            log_file=log_file,
        )

    def use_user(self, user):
        """Give what is written so far to a user, and run commands as that user. Only root can."""
        if os.geteuid() == 0:
            self.user = user
            for path in (self.directory, *self.directory.rglob('*')):
                os.chown(path, user, user)

    def _as_user(self, argv):
        if self.user == os.geteuid():
            return argv
        user = f'--reuid={self.user}', f'--regid={self.user}', '--clear-groups'
        return [shutil.which('setpriv'), *user, *argv]

    @property
    def environ(self):
        # the queue manager has a file in /dev/shm for each host and command, which belongs to the
        # user that ran the command first
        return {
            'HOME': str(self.home),
            'OS_OSLO_MESSAGING_RABBIT__HOSTNAME': self.directory.name,
        }

    def run(self, command, *arguments):
        return subprocess.run(
            self._as_user([BIN / command, *arguments]),
            env=os.environ | self.environ,
            text=True,
            capture_output=True,
        )

    def start(self, name, *argv):
        process = Process(name, self._as_user(argv), self.directory / f'{name}.out', self.environ)
        self._stack.callback(process.kill)
        process.start()
        return process

    def serve_wsgi(self, name='cyborg.wsgi.api', place='-'):
        return self.start('wsgi', sys.executable, '-c', SERVE_WSGI, name, place, self.port)

    def said(self):
        """Everything that the services wrote."""
        files = [*self.directory.glob('*.out'), *self.directory.glob('log/**/*.log')]
        return '\n'.join(path.read_text(errors='replace') for path in files)


@pytest.fixture
def tool():
    # other users cannot enter the directories of pytest
    with tempfile.TemporaryDirectory(prefix='cyborg-') as name, Tool(pathlib.Path(name)) as made:
        yield made
        sys.stdout.write(made.said())  # for a test that failed
        for file in pathlib.Path('/dev/shm').glob(f'{made.directory.name}_*'):
            file.unlink()


def assert_the_api_answers(tool, process):
    eventually(lambda: is_there(tool.url) or not process.is_alive, PATIENCE)
    # the probes of all tools, none of which has a token
    assert [
        requests.get(tool.url + path, timeout=60).status_code
        for path in ('', '/', '/v2', '/healthcheck')
    ] == [200] * 4
    refused = requests.get(f'{tool.url}/v2/devices', timeout=60)
    assert (refused.status_code, list(refused.json())) == (401, ['error_message'])


def assert_they_run(tool, *processes):
    """Each has a worker that has reached the broker."""
    for process in processes:
        eventually(lambda p=process: is_connected(tool, p) or not p.is_alive, PATIENCE)
        assert process.is_alive, process.name
        assert pathlib.Path(f'/proc/{process.pid}').stat().st_uid == tool.user
    assert 'Traceback' not in tool.said()


def is_connected(tool, process):
    workers = process.workers
    # the sentence of kombu about its own transport in memory
    return any(
        re.search(rf' {pid} WARNING kombu.connection .*No hostname was supplied', tool.said())
        for pid in workers
    )


def test_the_services_run_as_kolla_ansible_runs_them(tool):
    # given the files of its role, and its bootstrap container
    tool.write('kolla-ansible/cyborg.conf', log_file='cyborg-api.log')
    conf = tool.write('kolla-ansible/cyborg.conf', tool.directory / 'others')
    for name in ('api-paste.ini', 'policy.json'):
        tool.write(f'kolla-ansible/{name}')
    tool.use_user(KOLLA)
    bootstrapped = tool.run('cyborg-dbsync', 'upgrade')
    assert bootstrapped.returncode == 0, bootstrapped.stderr
    # when it starts them
    api = tool.serve_wsgi()
    others = [
        tool.start(name, BIN / name, '--config-file', conf)
        for name in ('cyborg-conductor', 'cyborg-agent')
    ]
    # then they run
    assert_the_api_answers(tool, api)
    assert_they_run(tool, *others)
    # and write where fluentd reads, and in its form
    for name in ('cyborg-api', *(process.name for process in others)):
        log = tool.directory / f'log/kolla/cyborg/{name}.log'
        assert LINE.match(log.read_text()), log
    # and tell of options that have another name now
    said = tool.said()
    assert 'Option "auth_strategy" from group "DEFAULT" is deprecated' in said
    assert 'Option "endpoint_type" from group "nova" is deprecated' in said
    # and its health check finds them by name
    for process in others:
        titles = [pathlib.Path(f'/proc/{pid}/cmdline').read_bytes() for pid in process.workers]
        assert all(process.name.encode() in title for title in titles)


def test_the_services_run_as_openstack_helm_runs_them(tool):
    # given a logging configuration that its chart names, and does not create
    conf = tool.write('openstack-helm/cyborg.conf')
    for name in ('api-paste.ini', 'policy.yaml'):
        tool.write(f'openstack-helm/{name}')
    tool.use_user(OPENSTACK_HELM)
    migrated = tool.run('cyborg-dbsync', '--config-file', conf, 'upgrade')
    assert migrated.returncode == 0, migrated.stderr
    missing = tool.directory / 'logging-cyborg.conf'
    arguments = ['--config-file', conf, '--log-config-append', missing]
    # when it starts them
    api, *others = [
        tool.start(name, BIN / name, *arguments)
        for name in ('cyborg-api', 'cyborg-conductor', 'cyborg-agent')
    ]
    # then they run, and say what is missing
    assert_the_api_answers(tool, api)
    assert_they_run(tool, *others)
    for process in (api, *others):
        assert process.said(f'There is no {missing}, which log_config_append names'), process.name
    assert api.terminate() == 0


def test_the_services_run_as_the_operator_of_rhoso_runs_them(tool):
    # given a directory of files for each service, and for dbsync one with the database alone
    migrations, etc = tool.directory / 'dbsync.conf.d', tool.directory / 'conductor.conf.d'
    tool.write('rhoso/dbsync.conf', migrations)
    tool.write('rhoso/00-default.conf', etc)
    log = tool.directory / 'log/cyborg-api.log'
    tool.write('rhoso/00-default.conf', tool.home / '.cyborg/cyborg.conf.d', log_file=log)
    shutil.copy(certifi.where(), tool.directory / 'tls-ca-bundle.pem')
    tool.use_user(RHOSO)
    migrated = tool.run('cyborg-dbsync', '--config-dir', migrations, 'upgrade')
    assert migrated.returncode == 0, migrated.stderr
    # when Apache loads the API as a file, with the paste file of the image
    import cyborg.wsgi

    [directory] = cyborg.wsgi.__path__
    api = tool.serve_wsgi('_mod_wsgi_0123', f'{directory}/api.py')
    conductor = tool.start('cyborg-conductor', BIN / 'cyborg-conductor', '--config-dir', etc)
    # then they run
    assert_the_api_answers(tool, api)
    assert_they_run(tool, conductor)
    # and the file that is shown beside the API has what it says
    assert LINE.match(log.read_text())


def test_the_api_runs_in_a_server_that_keeps_its_own_arguments(tool):
    for name in ('cyborg.conf', 'api-paste.ini', 'policy.json'):
        tool.write(f'kolla-ansible/{name}')
    listen = f'--listen=127.0.0.1:{tool.port}'
    api = tool.start('waitress', BIN / 'waitress-serve', listen, 'cyborg.wsgi.api:application')
    assert_the_api_answers(tool, api)


def test_the_services_run_with_the_options_of_upstreams_devstack_plugin(tool):
    conf = tool.write('devstack/cyborg.conf')
    migrated = tool.run('cyborg-dbsync', '--config-file', conf, 'upgrade')
    assert migrated.returncode == 0, migrated.stderr
    api, *others = [
        tool.start(name, BIN / name, f'--config-file={conf}')
        for name in ('cyborg-api', 'cyborg-conductor', 'cyborg-agent')
    ]
    assert_the_api_answers(tool, api)
    assert_they_run(tool, *others)


def test_the_policy_is_found_under_the_name_that_deployers_use():
    listed = subprocess.run(
        [BIN / 'oslopolicy-sample-generator', '--namespace', 'cyborg.api'],
        text=True,
        capture_output=True,
    )
    assert '"cyborg:device:get_all"' in listed.stdout, listed.stderr
