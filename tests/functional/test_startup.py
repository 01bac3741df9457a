# SPDX-License-Identifier: Apache-2.0
"""A mistake in the configuration is one sentence and a non-zero exit, not a traceback."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from cyborg.db.sqlalchemy import revisions
from tests.fixtures.upstream import Upstream

pytestmark = pytest.mark.embedded
BIN = pathlib.Path(sys.executable).parent
NOVA = '[nova]\nauth_type = none\nendpoint = http://127.0.0.1:1\n'
PLACEMENT = '[placement]\nauth_type = admin_token\nendpoint = http://127.0.0.1:1\ntoken = admin\n'
QUICK = '[database]\nmax_retries = 0\n'


def start(command, text, tmp_path, *arguments, broker='transport_url = kombu+memory:////'):
    path = tmp_path / 'cyborg.conf'
    path.write_text(f'[DEFAULT]\n{broker}\n{text}')
    return subprocess.run(
        [BIN / command, '--config-file', path, *arguments], text=True, capture_output=True
    )


@pytest.mark.parametrize(
    'command, text, sentence',
    [
        (
            'cyborg-agent',
            PLACEMENT + '[agent]\nenabled_drivers = fake_driver, toaster_driver\n',
            'There is no driver toaster_driver; known drivers: ',
        ),
        ('cyborg-agent', '', '[placement] auth_type is not set'),
        (
            'cyborg-agent',
            '[placement]\nauth_type = password\n',
            '[placement] cannot be used to authenticate',
        ),
        ('cyborg-agent', '[agent]\nresync_interval = soon\n', 'resync_interval'),
        ('cyborg-conductor', NOVA, 'There is no database to use: set [database] connection.'),
        (
            'cyborg-conductor',
            NOVA + QUICK + 'connection = mysql+pymysql://u:p@127.0.0.1:1/cyborg\n',
            'The database of [database] connection cannot be used',
        ),
        (
            'cyborg-conductor',
            NOVA + 'connection = sqlite:////nowhere/at/all/cyborg.db\n',
            'There is no database',
        ),
        ('cyborg-api', '[api]\napi_paste_config = nowhere.ini\n', 'There is no nowhere.ini'),
        (
            'cyborg-api',
            '[api]\nauth_strategy = noauth2\nhost_ip = 0.0.0.0\n',
            'would let anybody who reaches 0.0.0.0 do anything',
        ),
        (
            'cyborg-api',
            '[api]\nauth_strategy = noauth2\nhost_ip = localhost.example\n',
            'would let anybody who reaches localhost.example do anything',
        ),
        ('cyborg-api', '', '[keystone_authtoken] auth_type is not set'),
        ('cyborg-api', '[api]\nenable_ssl_api = true\n', 'have a proxy or a WSGI server end TLS'),
    ],
)
def test_a_mistake_is_one_sentence(command, text, sentence, tmp_path):
    result = start(command, text, tmp_path)
    assert result.returncode == 1
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith(f'{command}: ') and sentence in last
    assert 'Traceback' not in result.stderr + result.stdout
    assert 'u:p@' not in result.stderr


@pytest.mark.parametrize(
    ('command', 'text'),
    [
        ('cyborg-agent', PLACEMENT),
        ('cyborg-api', ''),
        ('cyborg-conductor', NOVA + '[database]\nconnection = sqlite:///{directory}/cyborg.db\n'),
    ],
)
def test_a_service_without_a_broker_says_so(command, text, tmp_path):
    text = text.format(directory=tmp_path)
    start('cyborg-dbsync', text, tmp_path, 'upgrade')
    result = start(command, f'{text}[DEFAULT]\n', tmp_path, broker='')
    assert result.returncode == 1
    assert result.stderr.strip().endswith('set [DEFAULT] transport_url.')
    assert 'Traceback' not in result.stderr


@pytest.mark.parametrize('forced', [False, True])
def test_a_wsgi_server_does_not_serve_everybody_unless_told_to(forced, tmp_path):
    path = tmp_path / '.cyborg/cyborg.conf'
    path.parent.mkdir()
    path.write_text(
        '[DEFAULT]\ntransport_url = kombu+memory:////\n'
        f'[api]\nauth_strategy = noauth2\nallow_remote_noauth = {forced}\n'
    )
    result = subprocess.run(
        [sys.executable, '-c', 'import cyborg.wsgi.api'],
        env=os.environ | {'HOME': str(tmp_path)},
        text=True,
        capture_output=True,
    )
    assert (result.returncode == 0) is forced, result.stderr
    assert forced or 'anybody who reaches this WSGI server' in result.stderr


def test_a_conductor_does_not_work_on_a_schema_it_does_not_know(tmp_path):
    text = f'{NOVA}[database]\nconnection = sqlite:///{tmp_path}/cyborg.db\n'
    refused = start('cyborg-conductor', text, tmp_path)
    assert refused.returncode == 1
    assert 'run cyborg-dbsync upgrade' in refused.stderr


@pytest.mark.parametrize(
    ('command', 'arguments'),
    [
        ('cyborg-dbsync', ('upgrade',)),
        ('cyborg-dbsync', ('upgrade', '--expand')),
        ('cyborg-dbsync', ('create_schema',)),
        ('cyborg-conductor', ()),
    ],
)
def test_the_database_of_the_upstream_service_is_refused_and_not_changed(
    command, arguments, tmp_path
):
    """Deployment tools upgrade in place: they run the new commands on the database that is
    there."""
    upstream = Upstream(tmp_path / 'upstream.db')
    before = upstream.execute('SELECT name FROM sqlite_master ORDER BY name')
    text = f'{NOVA}{PLACEMENT}[database]\nconnection = {upstream.url}\n'
    refused = start(command, text, tmp_path, *arguments)
    assert refused.returncode == 1, refused.stdout
    assert 'belongs to another service' in refused.stderr
    assert 'b47c8f2d1e3a' in refused.stderr
    assert 'cyborg-manage import' in refused.stderr and 'Traceback' not in refused.stderr
    assert upstream.execute('SELECT name FROM sqlite_master ORDER BY name') == before
    assert upstream.execute('SELECT version_num FROM alembic_version') == [('b47c8f2d1e3a',)]


@pytest.mark.parametrize(
    'arguments',
    [('audit',), ('host', 'forget', 'compute1'), ('profiles', 'migrate', '--map', 'CUSTOM_A=FPGA')],
)
def test_nothing_is_managed_in_a_schema_that_is_not_known(arguments, tmp_path):
    text = f'{NOVA}{PLACEMENT}[database]\nconnection = sqlite:///{tmp_path}/cyborg.db\n'
    refused = start('cyborg-manage', text, tmp_path, *arguments)
    assert refused.returncode == 1 and 'Traceback' not in refused.stderr
    assert 'run cyborg-dbsync upgrade' in refused.stderr


def test_an_audit_says_whom_it_could_not_ask_before_there_is_anything_to_ask(tmp_path):
    text = f'{NOVA}{PLACEMENT}[database]\nconnection = sqlite:///{tmp_path}/cyborg.db\n'
    start('cyborg-dbsync', text, tmp_path, 'upgrade')
    audited = start('cyborg-manage', text, tmp_path, 'audit')
    assert audited.returncode == 0, audited.stderr
    placement, nova, last = audited.stdout.splitlines()
    assert placement.startswith('Not compared with placement: ')
    assert nova.startswith('Not compared with nova: ')
    assert last == 'All that was compared agrees.'


def test_the_schema_is_made_told_and_checked_by_commands(tmp_path):
    text = f'[database]\nconnection = sqlite:///{tmp_path}/cyborg.db\n'
    assert 'empty' in start('cyborg-dbsync', text, tmp_path, 'version').stdout
    assert start('cyborg-status', text, tmp_path, 'upgrade', 'check').returncode == 2
    for before in ('nothing', revisions.head()):
        upgraded = start('cyborg-dbsync', text, tmp_path, 'upgrade')
        assert (upgraded.returncode, upgraded.stderr) == (0, '')
        assert upgraded.stdout == f'The schema is at {revisions.head()}; it was at {before}.\n'
    assert start('cyborg-dbsync', text, tmp_path, 'version').stdout.strip() == revisions.head()
    checked = start('cyborg-status', text, tmp_path, 'upgrade', 'check')
    assert (checked.returncode, checked.stderr) == (0, '')
    shown = start('cyborg-status', text, tmp_path, 'upgrade', 'check', '--json')
    assert {'Database schema': 0}.items() <= {
        each['check']: each['result'] for each in json.loads(shown.stdout)['checks']
    }.items()
    migrated = start('cyborg-dbsync', text, tmp_path, 'online_data_migrations')
    assert 'Nothing is left' in migrated.stdout
    unknown = start('cyborg-dbsync', text, tmp_path, 'upgrade', '--revision', 'nonsense')
    assert unknown.returncode == 1 and 'Traceback' not in unknown.stderr
