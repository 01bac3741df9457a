# SPDX-License-Identifier: Apache-2.0
"""The standalone as a bench: its control interface, the commands that use it, and its page."""

import sys
import threading

import pytest
import requests

from cyborg.cmd import sim
from cyborg.workbench import state_directory
from tests.fixtures.bench import VGPUS, running
from tests.fixtures.cloud import PATIENCE, eventually

pytestmark = pytest.mark.embedded
T4, QAT, TIMECARD, SPARE = '0000:3b:00.0', '0000:6b:00.0', '0000:85:00.0', '0000:d8:00.0'
ADMIN = {'X-Auth-Token': 'admin', 'OpenStack-API-Version': 'placement 1.39'}


@pytest.fixture(scope='module')
def bench(tmp_path_factory):
    with running(tmp_path_factory.mktemp('bench')) as made:
        yield made


@pytest.fixture
def run(monkeypatch, capsys):
    """Run cyborg-sim; returns what it printed, or the sentence with which it failed."""

    def run(*arguments):
        monkeypatch.setattr(sys, 'argv', ['cyborg-sim', *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            sim.main()
        return left.value.code or capsys.readouterr().out.strip()

    return run


# -- cards and hosts --------------------------------------------------------------------------


def test_a_card_is_plugged_in_and_pulled_by_command(bench, run):
    here = ('--state-dir', bench.directory)
    assert run('plug', 't4', *here) == f'NVIDIA T4 is in slot {SPARE} of compute1.'
    eventually(lambda: bench.device(SPARE))
    assert run('plug', 't4', *here) == f'cyborg-sim: There is a card at {SPARE} already.'
    assert run('pull', SPARE, *here) == f'NVIDIA T4 is no longer in slot {SPARE} of compute1.'
    eventually(lambda: bench.device(SPARE) is None)
    assert run('pull', SPARE, *here) == f'cyborg-sim: There is no card at {SPARE}.'


def test_a_card_of_the_catalogue_gets_a_free_slot(bench):
    response = bench.call('POST', '/control/plug', {'card': '1d9b:0400'}).json()
    eventually(lambda: bench.device(response['at']))
    assert bench.control('pull', at=response['at']).endswith('of compute1.')
    eventually(lambda: bench.device(response['at']) is None)


@pytest.mark.parametrize(
    ('kind', 'fault'), [((), 'fatal PCI errors'), (('--silent',), 'does not answer any more')]
)
def test_an_ill_card_is_withheld_until_it_is_well(bench, run, kind, fault):
    here = ('--state-dir', bench.directory)
    run('fault', TIMECARD, *kind, *here)
    eventually(lambda: fault in (bench.device(TIMECARD)['fault'] or ''))
    [unit] = bench.device(TIMECARD)['deployables'][0]['units']
    assert unit['withheld'] == 'at_fault'
    [shown] = [card for card in bench.get('/control')['hosts'][0]['cards'] if card['ill']]
    assert shown['at'] == TIMECARD
    assert run('fault', TIMECARD, '--clear', *here).endswith('has no fault any more.')
    eventually(lambda: bench.device(TIMECARD)['fault'] is None)


def test_a_reboot_leaves_a_server_with_its_accelerators(bench, run):
    bench.control('boot', profile=bench.profile(VGPUS), name='survivor')
    mdevs = bench.directory / 'hosts/compute1/bus/mdev/devices'
    before = {path.name for path in mdevs.iterdir()}
    assert len(before) == 2
    assert run('reboot', '--state-dir', bench.directory) == 'compute1 was rebooted.'
    eventually(lambda: mdevs.exists() and {path.name for path in mdevs.iterdir()} == before)
    server = bench.server('survivor')
    arqs = f'/v2/accelerator_requests?instance={server["id"]}'
    eventually(lambda: [arq['state'] for arq in bench.get(arqs)['arqs']] == ['Bound'] * 2)
    assert len(bench.device(QAT)['deployables'][0]['units']) == 16
    bench.control('delete', server='survivor')


def test_a_command_without_a_running_standalone_says_how_to_start_one(run, tmp_path):
    assert run('reboot', '--state-dir', tmp_path).startswith(
        f'cyborg-sim: No cyborg-standalone runs with {tmp_path}. Start one with '
        f'"cyborg-standalone run --state-dir {tmp_path}"'
    )
    (tmp_path / 'pid').write_text('4711\n')
    (tmp_path / 'url').write_text('http://127.0.0.1:9\n')
    assert run('reboot', '--state-dir', tmp_path).startswith('cyborg-sim: No cyborg-standalone')
    (tmp_path / 'url').unlink()
    with state_directory.owned(tmp_path):
        assert run('reboot', '--state-dir', tmp_path).endswith('Try again in a moment.')


@pytest.mark.parametrize(
    ('operation', 'facts', 'sentence'),
    [
        ('plug', {}, "plug: 'card' is a required property."),
        ('plug', {'card': 'zx81'}, 'There is no card zx81. There are '),
        ('plug', {'card': '10de:1eb8', 'at': 'x'}, 'x is not a PCI address such as 0000:3b:00.0.'),
        ('pull', {'at': T4, 'hostname': 'mars'}, 'There is no host mars. There are compute1.'),
        ('fault', {'at': T4, 'kind': 'flu'}, "kind: 'flu' is not one of "),
        ('fault', {'at': '0000:00:00.0'}, 'There is no card at 0000:00:00.0.'),
        ('reboot', {'now': True}, 'reboot: Additional properties are not allowed'),
        ('boot', {'profile': 'none'}, 'There is no device profile none.'),
        ('delete', {'server': 'none'}, 'There is no server none.'),
        ('dance', {}, 'There is no operation dance. There are boot, delete, '),
    ],
)
def test_a_wrong_request_is_answered_with_a_sentence(bench, operation, facts, sentence):
    response = bench.call('POST', f'/control/{operation}', facts)
    assert response.status_code in (400, 404, 409)
    assert response.json()['error'].startswith(sentence)


# -- servers ----------------------------------------------------------------------------------


def test_a_server_gets_what_its_profile_asks_for_and_gives_it_back(bench):
    profile = bench.profile(VGPUS, {'resources:CUSTOM_QAT': '1'})
    assert bench.control('boot', profile=profile, name='web') == 'web runs on compute1.'
    server = bench.server('web')
    assert (server['status'], server['hostname']) == ('ACTIVE', 'compute1')
    instance = f'/v2/accelerator_requests?instance={server["id"]}'
    assert [arq['state'] for arq in bench.get(instance)['arqs']] == ['Bound'] * 3
    held = [
        unit
        for unit in bench.device(T4)['deployables'][0]['units']
        if unit['instance_uuid'] == server['id']
    ]
    assert len(held) == 2
    allocation = f'/placement/allocations/{server["id"]}'
    assert len(bench.call('GET', allocation, **ADMIN).json()['allocations']) == 2
    assert bench.control('delete', server='web') == 'Server web is deleted.'
    assert bench.get(instance)['arqs'] == []
    assert bench.call('GET', allocation, **ADMIN).json()['allocations'] == {}
    assert 'web' not in {each['name'] for each in bench.get('/control')['servers']}


def test_a_server_that_is_deleted_while_it_is_built_holds_nothing(bench):
    profile = bench.profile(VGPUS)
    boot = threading.Thread(
        target=bench.control, args=('boot',), kwargs={'profile': profile, 'name': 'short'}
    )
    boot.start()
    eventually(lambda: bench.control('delete', server='short') == 'Server short is deleted.')
    boot.join()
    assert bench.get('/v2/accelerator_requests')['arqs'] == []


def test_a_server_that_fits_nowhere_says_why_and_holds_nothing(bench):
    profile = bench.profile({'resources:CUSTOM_QAT': '17'})
    sentence = bench.control('boot', profile=profile, name='big', hostname='compute1')
    assert sentence.startswith('big is in ERROR: No valid host was found. compute1: It does not')
    assert bench.server('big')['status'] == 'ERROR'
    assert not [
        arq
        for arq in bench.get('/v2/accelerator_requests')['arqs']
        if arq['device_profile_name'] == profile
    ]
    bench.control('delete', server='big')


# -- the page and other pages -----------------------------------------------------------------


def test_a_browser_gets_the_page_and_every_other_client_the_version_document(bench):
    page = bench.call('GET', '/', Accept='text/html,application/xhtml+xml,*/*;q=0.8')
    assert page.headers['Content-Type'] == 'text/html; charset=utf-8'
    assert "default-src 'none'" in page.headers['Content-Security-Policy']
    assert '<title>Cyborg standalone</title>' in page.text
    for accepted in ('*/*', 'application/json', ''):
        document = bench.call('GET', '/', Accept=accepted)
        assert document.json()['versions'][0]['id'] == 'v2'
    assert bench.call('GET', '/v2', Accept='text/html').json()['id'] == 'v2.0'


def test_the_page_loads_nothing_from_elsewhere_and_writes_no_markup(bench):
    page = bench.call('GET', '/', Accept='text/html').text
    assert 'http://' not in page and 'https://' not in page
    for unsafe in ('innerHTML', 'outerHTML', 'insertAdjacentHTML', 'document.write', 'eval('):
        assert unsafe not in page


@pytest.mark.parametrize(
    'headers',
    [
        {'Origin': 'http://elsewhere.example'},
        {'Origin': 'null'},
        {'Origin': 'http://127.0.0.1:1'},
        {'Host': 'elsewhere.example'},
        {'Host': 'localhost.elsewhere.example'},
        {'Host': '['},
    ],
    ids=lambda headers: ' '.join(*headers.items()),
)
@pytest.mark.parametrize(
    ('method', 'path'),
    [('POST', '/control/reboot'), ('GET', '/control'), ('DELETE', '/v2/device_profiles/x')],
)
def test_pages_of_other_sites_are_refused(bench, headers, method, path):
    response = bench.call(method, path, {}, **headers)
    assert response.status_code == 403
    assert 'no login' in response.json()['error']


def test_our_own_page_may_do_everything(bench):
    port = bench.url.rpartition(':')[2]
    for host in (f'127.0.0.1:{port}', f'localhost:{port}'):
        response = bench.call(
            'POST', '/control/fault', {'at': T4, 'kind': 'none'}, Host=host, Origin=f'http://{host}'
        )
        assert response.status_code == 200


def test_a_form_of_another_site_cannot_control_anything(bench):
    """A form is sent without asking first, but not as JSON."""
    response = requests.post(f'{bench.url}/control/reboot', data='{}', timeout=PATIENCE)
    assert response.status_code == 415


def test_what_the_page_repeats_is_not_in_the_access_log(bench, caplog):
    caplog.set_level('INFO', 'cyborg.access')
    bench.call('GET', '/v2/agents', **{'X-Workbench-Poll': '1'})
    assert not caplog.records
    bench.call('GET', '/v2/agents')
    assert len(caplog.records) == 1
