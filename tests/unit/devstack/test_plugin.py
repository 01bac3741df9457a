# SPDX-License-Identifier: Apache-2.0
"""The DevStack plugin: what it writes is what our services read.

DevStack's own functions are stood in for by ones that write down how they are called.
"""

import configparser
import pathlib
import stat
import subprocess

import pytest
from keystoneauth1 import loading
from oslo_config import cfg

from cyborg import conf, sim
from cyborg.accelerator import driver
from cyborg.accelerator.sysfs import Sysfs
from cyborg.conf import opts

DEVSTACK = pathlib.Path(__file__).parents[3] / 'devstack'

#: DevStack's side. iniset may repeat a section, which oslo.config allows.
PRELUDE = r"""
set -o errexit
ENABLED_SERVICES=key,n-cpu,tempest
DEST=$ROOT/dest DATA_DIR=$ROOT/data STACK_USER=$(id -un)
SERVICE_HOST=203.0.113.5 SERVICE_PROTOCOL=http SERVICE_LISTEN_ADDRESS=0.0.0.0
SERVICE_PASSWORD=s3cret SERVICE_DOMAIN_NAME=Default SERVICE_PROJECT_NAME=service
KEYSTONE_SERVICE_URI=http://203.0.113.5/identity REGION_NAME=RegionOne SERVICE_TIMEOUT=60
NOVA_CONF_DIR=$ROOT/nova NOVA_CONF=$NOVA_CONF_DIR/nova.conf TEMPEST_CONFIG=$ROOT/tempest.conf
GLOBAL_VENV=True DEVSTACK_VENV=$ROOT/venv ENABLE_DEBUG_LOG_LEVEL=True
SSL_BUNDLE_FILE=$ROOT/ca-bundle.pem
CYBORG_CONF_DIR=$ROOT/etc CYBORG_DIR=$SOURCE

called() { echo "$*" >> "$ROOT/calls"; }
for name in define_plugin echo_summary setup_develop setup_logging create_service_user \
        get_or_create_service get_or_create_endpoint recreate_database run_process \
        stop_process wait_for_service start_tls_proxy write_uwsgi_config \
        remove_uwsgi_config; do
    eval "$name() { called $name \"\$@\"; }"
done
die() { called die "$@"; exit 1; }
sudo() { "$@"; }
trueorfalse() {
    case "${!2:-}" in
        1 | [yY]es | YES | [tT]rue | TRUE) echo True ;;
        0 | [nN]o | NO | [fF]alse | FALSE) echo False ;;
        *) echo "$1" ;;
    esac
}
which() { echo "/usr/bin/$1"; }
get_python_exec_prefix() { echo "$ROOT/bin"; }
enable_service() { local name; for name; do ENABLED_SERVICES+=,$name; done; }
is_service_enabled() {
    [[ ,$ENABLED_SERVICES, == *,$1,* ]] || { declare -F "is_$1_enabled" && "is_$1_enabled"; }
} > /dev/null
iniset() { printf '[%s]\n%s = %s\n' "$2" "$3" "$4" >> "$1"; }
iniset_rpc_backend() { iniset "$2" "$3" transport_url rabbit://stackrabbit:s3cret@203.0.113.5/; }
database_connection_url() { echo "mysql+pymysql://root:s3cret@127.0.0.1/$1?charset=utf8"; }
configure_keystone_authtoken_middleware() { iniset "$1" keystone_authtoken username "$2"; }
"""


class DevStack:
    """A host on which stack.sh runs."""

    def __init__(self, root):
        self.root = root
        for name in ('bin', 'nova'):
            (root / name).mkdir()
        (root / 'nova' / 'nova.conf').touch()
        (root / 'nova' / 'nova_cell1.conf').touch()
        for name in ('cyborg-dbsync', 'cyborg-status', 'cyborg-sim'):
            self.command(name, 'exit 0')

    def command(self, name, outcome):
        """Have one of our commands note its arguments and end like this."""
        path = self.root / 'bin' / name
        path.write_text(f'#!/bin/sh\necho {name} "$@" >> {self.root}/calls\n{outcome}\n')
        path.chmod(0o755)

    def run(self, *phases, local_conf='', plugin=DEVSTACK):
        script = [PRELUDE, local_conf, f'source {plugin}/settings', local_conf]
        script += [f'source {plugin}/plugin.sh {phase}' for phase in phases]
        return subprocess.run(
            ['bash', '-c', '\n'.join(script)],
            capture_output=True,
            text=True,
            check=False,
            env={'PATH': '/usr/bin:/bin', 'ROOT': str(self.root), 'SOURCE': str(DEVSTACK.parent)},
        )

    def stack(self, local_conf='', plugin=DEVSTACK):
        phases = ('install', 'post-config', 'extra', 'test-config')
        done = self.run(
            *(f'stack {phase}' for phase in phases), local_conf=local_conf, plugin=plugin
        )
        assert (done.returncode, done.stderr) == (0, '')

    @property
    def calls(self):
        return (self.root / 'calls').read_text().splitlines()

    def ini(self, name):
        parser = configparser.ConfigParser(strict=False, interpolation=None)
        parser.read(self.root / name)
        return parser

    def read_as_cyborg(self):
        known = cfg.ConfigOpts()
        conf.register(known)
        known(['--config-file', str(self.root / 'etc' / 'cyborg.conf')], project='cyborg')
        return known


@pytest.fixture
def devstack(tmp_path):
    return DevStack(tmp_path)


def test_a_failed_migration_ends_the_run_before_anything_starts(devstack):
    devstack.command('cyborg-dbsync', 'exit 1')
    assert devstack.run('stack post-config', 'stack extra').returncode != 0
    assert not [call for call in devstack.calls if call.startswith('run_process')]


def test_a_host_without_our_services_is_left_alone(devstack):
    devstack.run(
        'stack install',
        'stack post-config',
        'stack extra',
        'unstack',
        'clean',
        local_conf='ENABLED_SERVICES=key,n-cpu',
    )
    assert devstack.calls == ['define_plugin cyborg']
    assert not (devstack.root / 'etc').exists()


def test_the_services_read_what_is_written(devstack):
    devstack.stack()
    known = devstack.read_as_cyborg()
    assert known.agent.enabled_drivers == ['fake_driver']
    assert known.api.public_endpoint == 'http://203.0.113.5/accelerator'
    assert known.state_path == f'{devstack.root}/data/cyborg'
    for service in (known.placement, known.nova, known.glance):
        assert (service.auth_type, service.region_name) == ('password', 'RegionOne')


def test_every_option_of_ours_is_one_we_know(devstack):
    devstack.stack(local_conf='CYBORG_API_MODE=standalone CYBORG_RESOURCE_PROVIDER=node1')
    written = devstack.ini('etc/cyborg.conf')
    password = {opt.dest for opt in loading.get_auth_plugin_conf_options('password')}
    for section, options in opts.list_opts():
        if section in written:
            unknown = set(written[section]) - {opt.dest for opt in options} - password
            assert unknown <= set(written.defaults()), section


def test_the_configuration_is_for_the_service_user_alone(devstack):
    devstack.stack()
    mode = (devstack.root / 'etc' / 'cyborg.conf').stat().st_mode
    assert stat.S_IMODE(mode) == 0o600


@pytest.mark.parametrize(
    ('local_conf', 'url'),
    [
        ('', 'http://203.0.113.5/accelerator'),
        ('CYBORG_API_MODE=standalone', 'http://203.0.113.5:6666'),
        ('CYBORG_USE_UWSGI=False', 'http://203.0.113.5:6666'),
        ('CYBORG_USE_UWSGI=True', 'http://203.0.113.5/accelerator'),
        ('ENABLED_SERVICES+=,tls-proxy', 'https://203.0.113.5/accelerator'),
        ('CYBORG_API_MODE=standalone; ENABLED_SERVICES+=,tls-proxy', 'https://203.0.113.5:6666'),
    ],
)
def test_the_catalogue_leads_to_where_the_api_is(devstack, local_conf, url):
    devstack.stack(local_conf)
    assert 'create_service_user cyborg admin' in devstack.calls
    assert 'get_or_create_service cyborg accelerator Accelerator Service' in devstack.calls
    assert (
        f'get_or_create_endpoint accelerator RegionOne {url}/v2 {url}/v2 {url}/v2' in devstack.calls
    )
    assert f'wait_for_service 60 {url}/' in devstack.calls
    assert devstack.read_as_cyborg().api.public_endpoint == url


def test_behind_apache_the_wsgi_module_runs_in_uwsgi(devstack):
    devstack.stack()
    ini = f'{devstack.root}/etc/cyborg-api-uwsgi.ini'
    assert (
        f'write_uwsgi_config {ini} cyborg.wsgi.api:application /accelerator  cyborg-api'
        in devstack.calls
    )
    [start] = [call for call in devstack.calls if call.startswith('run_process cyborg-api')]
    assert f'--ini {ini} --venv {devstack.root}/venv' in start
    uwsgi = devstack.ini('etc/cyborg-api-uwsgi.ini')['uwsgi']
    assert uwsgi['pyargv'] == f'--config-file {devstack.root}/etc/cyborg.conf'
    assert int(uwsgi['threads']) > devstack.read_as_cyborg().api.max_waiting_binds


def test_standalone_behind_the_tls_proxy_leaves_it_the_port(devstack):
    devstack.stack('CYBORG_API_MODE=standalone; ENABLED_SERVICES+=,tls-proxy')
    assert devstack.read_as_cyborg().api.port == 16666
    assert 'start_tls_proxy cyborg * 6666 203.0.113.5 16666' in devstack.calls


def test_the_database_is_made_before_its_users_start(devstack):
    devstack.stack()
    config = f'--config-file {devstack.root}/etc/cyborg.conf'
    steps = [
        call
        for call in devstack.calls
        if call.startswith(('recreate_database', 'cyborg-dbsync', 'run_process'))
    ]
    assert steps[:2] == [
        'recreate_database cyborg',
        f'cyborg-dbsync {config} upgrade',
    ]
    assert [step.split()[1] for step in steps[2:]] == ['cyborg-cond', 'cyborg-api', 'cyborg-agent']


def test_a_compute_host_learns_neither_the_database_nor_the_api(devstack):
    devstack.run(
        'stack post-config', 'stack extra', local_conf='ENABLED_SERVICES=n-cpu,cyborg-agent'
    )
    written = devstack.ini('etc/cyborg.conf')
    assert {'placement', 'glance', 'agent'} <= set(written)
    assert not {'database', 'keystone_authtoken', 'api', 'nova'} & set(written)
    assert not [call for call in devstack.calls if 'database' in call or 'dbsync' in call]


def test_a_controller_without_an_agent_reaches_placement(devstack):
    devstack.stack(local_conf='ENABLED_SERVICES=key,cyborg-api,cyborg-cond')
    known = devstack.read_as_cyborg()
    assert (known.placement.auth_type, known.nova.auth_type) == ('password', 'password')


@pytest.mark.parametrize('name', ['nova.conf', 'nova_cell1.conf'])
def test_nova_sends_a_service_token(devstack, name):
    devstack.stack()
    section = devstack.ini(f'nova/{name}')['service_user']
    assert section['send_service_user_token'] == 'True'
    assert (section['auth_type'], section['username']) == ('password', 'nova')


def test_tempest_learns_of_the_service(devstack):
    devstack.stack()
    learned = devstack.ini('tempest.conf')
    assert learned['service_available']['cyborg'] == 'True'
    assert learned['cyborg_policy']['enforce_new_defaults'] == 'True'
    assert dict(learned['accelerator']) == {'min_microversion': '2.0', 'max_microversion': 'latest'}


def test_jobs_say_which_microversions_tempest_tests(devstack):
    devstack.stack(
        'TEMPEST_ACCELERATOR_MIN_MICROVERSION=2.1; TEMPEST_ACCELERATOR_MAX_MICROVERSION=2.3'
    )
    learned = devstack.ini('tempest.conf')['accelerator']
    assert (learned['min_microversion'], learned['max_microversion']) == ('2.1', '2.3')


def test_the_plugin_may_have_any_name(devstack):
    directory = devstack.root / 'dest' / 'accelerators'
    directory.mkdir(parents=True)
    for name in ('devstack', 'etc'):
        (directory / name).symlink_to(DEVSTACK.parent / name)
    devstack.stack('unset CYBORG_DIR', plugin=directory / 'devstack')
    assert f'setup_develop {directory}' in devstack.calls


def test_simulated_hardware_takes_one_variable(devstack):
    devstack.stack('CYBORG_SIMULATED_HARDWARE=True')
    known, sysfs = devstack.read_as_cyborg().agent, f'{devstack.root}/data/cyborg/sys'
    assert (known.sysfs_root, known.enabled_drivers) == (sysfs, ['intel_qat_driver'])
    description = DEVSTACK / 'simulated-host.yaml'
    assert f'cyborg-sim build {description} {sysfs}' in devstack.calls


@pytest.mark.parametrize('value', ['False', 'no', '0'])
def test_simulated_hardware_can_be_refused(devstack, value):
    devstack.stack(f'CYBORG_SIMULATED_HARDWARE={value}')
    known = devstack.read_as_cyborg().agent
    assert (known.sysfs_root, known.enabled_drivers) == ('/sys', ['fake_driver'])
    assert not [call for call in devstack.calls if call.startswith('cyborg-sim')]


def test_simulated_hardware_can_be_described(devstack):
    description = devstack.root / 'mine.yaml'
    description.touch()
    devstack.stack(f'CYBORG_SIMULATED_HARDWARE={description}; CYBORG_ENABLED_DRIVERS=nvme_driver')
    assert devstack.read_as_cyborg().agent.enabled_drivers == ['nvme_driver']
    assert f'cyborg-sim build {description} {devstack.root}/data/cyborg/sys' in devstack.calls


def test_a_description_that_is_not_there_ends_the_run(devstack):
    done = devstack.run('stack post-config', local_conf='CYBORG_SIMULATED_HARDWARE=/nowhere.yaml')
    assert done.returncode != 0
    assert any(call.startswith('die ') and '/nowhere.yaml' in call for call in devstack.calls)


def test_the_simulated_host_has_what_its_driver_finds(tmp_path):
    sim.Host.described(tmp_path / 'sys', DEVSTACK / 'simulated-host.yaml')
    known = cfg.ConfigOpts()
    conf.register(known)
    known([], project='cyborg', default_config_files=[])
    [qat] = driver.load(['intel_qat_driver'], known, Sysfs(tmp_path / 'sys'))
    [device] = qat.discover()
    assert sum(len(each.attach_handles) for each in device.deployables) == 4


def test_unstack_stops_and_clean_removes_what_stack_made(devstack):
    devstack.stack()
    assert devstack.run('unstack', 'clean').returncode == 0
    stopped = [call.split()[1] for call in devstack.calls if call.startswith('stop_process')]
    assert sorted(stopped) == ['cyborg-agent', 'cyborg-api', 'cyborg-cond']
    assert [path for path in ('etc', 'data/cyborg') if (devstack.root / path).exists()] == []
