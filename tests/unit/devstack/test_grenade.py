# SPDX-License-Identifier: Apache-2.0
"""The Grenade plugin: what it does between two releases, and what must survive that."""

import os
import subprocess

import pytest

from tests.unit.devstack.test_plugin import DEVSTACK, PRELUDE, DevStack

#: Grenade's side
GRENADE = r"""
for name in register_project_for_upgrade register_db_to_save devstack_localrc upgrade_project \
        ensure_services_started ensure_services_stopped; do
    eval "$name() { called $name \"\$@\"; }"
done
resource_save() { echo "$3" > "$ROOT/$1-$2"; }
resource_get() { cat "$ROOT/$1-$2"; }
"""
CATALOGUE = '{"endpoints": [{"interface": "public", "url": "http://203.0.113.5/accelerator/v2"}]}'
#: what a client would be told, by method and path
CURL = r"""
case "$*" in
    *"--request POST"*/device_profiles*) echo '{"uuid": "some-uuid"}' ;;
    *"--request GET"*/device_profiles/some-uuid*) echo '{"name": "grenade-accelerator"}' ;;
    *"--request GET"*/devices*) echo '{"devices": [{"uuid": "a"}]}' ;;
    *"--request DELETE"*/device_profiles/some-uuid*) ;;
    *) exit 22 ;;
esac
"""


class Grenade(DevStack):
    """A host on which grenade.sh runs."""

    def __init__(self, root):
        super().__init__(root)
        for name in ('grenade', 'old/lib', 'new/lib', 'save', 'etc'):
            (root / name).mkdir(parents=True)
        (root / 'grenade/grenaderc').touch()
        # both know how to note calls
        (root / 'grenade/functions').write_text(PRELUDE + GRENADE)
        for release in ('old', 'new'):
            (root / release / 'functions').write_text('')
            for name in ('stackrc', 'openrc', 'lib/tls', 'lib/apache'):
                (root / release / name).touch()
        self.command('openstack', f"[ $1 = token ] && echo secret || echo '{CATALOGUE}'")
        self.command('curl', CURL)
        (root / 'calls').touch()

    def script(self, name, *arguments):
        return subprocess.run(
            [DEVSTACK / 'upgrade' / name, *arguments],
            capture_output=True,
            text=True,
            env={
                'PATH': f'{self.root}/bin:/usr/bin:/bin',
                'ROOT': str(self.root),
                'SOURCE': str(DEVSTACK.parent),
                'GRENADE_DIR': f'{self.root}/grenade',
                'BASE_DEVSTACK_DIR': f'{self.root}/old',
                'TARGET_DEVSTACK_DIR': f'{self.root}/new',
                'TOP_DIR': f'{self.root}/old',
                'BASE_DEVSTACK_BRANCH': 'stable/2026.1',
                'TARGET_DEVSTACK_BRANCH': 'stable/2026.2',
                'SAVE_DIR': f'{self.root}/save',
            },
        )


@pytest.fixture
def grenade(tmp_path):
    return Grenade(tmp_path)


def test_grenade_learns_of_the_project_its_database_and_its_services(grenade):
    script = f'{PRELUDE}{GRENADE}\nsource {DEVSTACK}/upgrade/settings'
    environ = {'PATH': os.environ['PATH'], 'ROOT': str(grenade.root), 'SOURCE': '.'}
    subprocess.run(['bash', '-c', script], check=True, env=environ)
    services = 'enable_service cyborg-api cyborg-cond cyborg-agent'
    assert grenade.calls == [
        'register_project_for_upgrade cyborg',
        'register_db_to_save cyborg',
        f'devstack_localrc base {services}',
        f'devstack_localrc target {services}',
    ]


def test_the_old_services_are_stopped(grenade):
    done = grenade.script('shutdown.sh')
    assert done.returncode == 0, done.stderr
    stopped = [call.split()[1] for call in grenade.calls if call.startswith('stop_process')]
    assert sorted(stopped) == ['cyborg-agent', 'cyborg-api', 'cyborg-cond']
    assert grenade.calls[-1] == 'ensure_services_stopped cyborg-api cyborg-cond cyborg-agent'


@pytest.mark.parametrize('status', [0, 1])
def test_the_new_release_is_installed_migrated_checked_and_started(grenade, status):
    grenade.command('cyborg-status', f'exit {status}')
    done = grenade.script('upgrade.sh')
    assert done.returncode == 0, done.stderr
    config = f'--config-file {grenade.root}/etc/cyborg.conf'
    wanted = [
        f'setup_develop {DEVSTACK.parent}',
        f'cyborg-dbsync {config} upgrade',
        f'cyborg-status {config} upgrade check',
        'ensure_services_started cyborg-api cyborg-cond cyborg-agent',
    ]
    assert [call for call in grenade.calls if call in wanted] == wanted
    started = [call.split()[1] for call in grenade.calls if call.startswith('run_process')]
    assert started == ['cyborg-cond', 'cyborg-api', 'cyborg-agent']
    assert (grenade.root / 'save/etc.cyborg').is_dir()


@pytest.mark.parametrize('name', ['cyborg-dbsync', 'cyborg-status'])
def test_nothing_starts_after_a_failed_migration_or_check(grenade, name):
    grenade.command(name, 'exit 2')
    assert grenade.script('upgrade.sh').returncode != 0
    assert not [call for call in grenade.calls if call.startswith('run_process')]


def test_resources_are_made_looked_for_and_deleted(grenade):
    for action in ('create', 'verify', 'verify_noapi', 'verify', 'destroy'):
        done = grenade.script('resources.sh', action)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize('phase', ['early_create', 'verify_api'])
def test_phases_without_resources_pass(grenade, phase):
    grenade.command('curl', 'exit 22')
    assert grenade.script('resources.sh', phase).returncode == 0


def test_grenade_goes_on_after_a_forced_deletion_that_fails(grenade):
    assert grenade.script('resources.sh', 'create').returncode == 0
    grenade.command('curl', 'exit 22')
    assert grenade.script('resources.sh', 'destroy').returncode != 0
    assert grenade.script('resources.sh', 'force_destroy').returncode == 0


def test_a_resource_that_did_not_survive_is_noticed(grenade):
    assert grenade.script('resources.sh', 'create').returncode == 0
    grenade.command('curl', 'exit 22')
    assert grenade.script('resources.sh', 'verify').returncode != 0
    grenade.command('curl', 'echo "{}"')
    assert grenade.script('resources.sh', 'verify').returncode != 0
