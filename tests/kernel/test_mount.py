# SPDX-License-Identifier: Apache-2.0
"""A simulated /sys, as programs see it that know nothing of simulation."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import stevedore
import yaml
from oslo_config import cfg

from cyborg import conf as options
from cyborg.accelerator import driver
from cyborg.sim import Host, namespace
from cyborg.sim.conformance.testbed import comparable
from tests.fixtures.cloud import eventually
from tests.kernel import laws, simulated
from tools.bench import hotplug

ROOT = Path(__file__).parents[2]
T4, SPARE, QAT = '0000:3b:00.0', '0000:d8:00.0', '0000:6b:00.0'
FACTS = {
    'cards': [
        {'model': '10de:1eb8', 'at': T4},
        {'model': '8086:4940', 'at': QAT, 'vfs': 2},
        {'model': '1d9b:0400', 'at': '0000:85:00.0'},
        {'model': '8086:09c4', 'at': '0000:5e:00.0'},
    ],
    'spares': {'other': {'model': '10de:1eb8', 'at': SPARE}},
}
LOOK = """
import json, sys
from oslo_config import cfg
from cyborg import conf as options
from cyborg.accelerator import driver
from cyborg.accelerator.sysfs import Sysfs
from cyborg.sim.conformance.testbed import comparable
conf = cfg.ConfigOpts()
options.register(conf)
conf([], project='cyborg', default_config_files=[], default_config_dirs=[])
print(json.dumps([comparable(device) for each in driver.load(sys.argv[1:], conf, Sysfs())
                  for device in each.discover()]))
"""


@pytest.fixture(scope='module', autouse=True)
def _possible(need_namespaces):
    """Else there is nothing to see."""


@pytest.fixture
def described(tmp_path):
    path = tmp_path / 'host.yaml'
    path.write_text(yaml.safe_dump(FACTS))
    return path


@pytest.fixture
def run(described):
    """What became of a command for which the host is real."""

    def run(*command, path=described):
        return subprocess.run(
            namespace.command_line(path, list(map(str, command))),
            cwd=ROOT,
            env=os.environ | {'PYTHONPATH': str(ROOT)},
            text=True,
            capture_output=True,
        )

    return run


@pytest.fixture
def python(run):
    """What a program prints."""

    def python(text, *arguments):
        done = run(sys.executable, '-W', 'ignore', '-c', textwrap.dedent(text), *arguments)
        assert done.stderr == ''
        return done.stdout

    return python


class TestCommands:
    def test_one_finds_the_host_and_nothing_of_the_real_one(self, run):
        done = run('ls', '/sys/bus/pci/devices')
        assert done.stdout.split() == [
            '0000:3a:1c.0',
            T4,
            '0000:5d:1c.0',
            '0000:5e:00.0',
            '0000:6a:1c.0',
            QAT,
            '0000:6b:01.0',
            '0000:6b:01.1',
            '0000:84:1c.0',
            '0000:85:00.0',
        ]
        # proc has what the simulated host tells of itself outside of /sys
        assert run('ls', '/sys').stdout.split() == ['bus', 'class', 'devices', 'kernel', 'proc']

    def test_one_is_run_where_it_was_started(self, run):
        assert run('pwd').stdout.strip() == str(ROOT)

    @pytest.mark.parametrize(('script', 'code'), [('exit 7', 7), ('kill -TERM $$', 128 + 15)])
    def test_it_ends_as_one_ends(self, run, script, code):
        assert run('sh', '-c', script).returncode == code

    def test_the_command_line_leads_there(self, described):
        done = subprocess.run(
            [
                sys.executable,
                '-W',
                'ignore',
                '-c',
                'from cyborg.cmd import sim; sim.main()',
                'mount',
                described,
                '--',
                'sh',
                '-c',
                'cat "$0"; exit 3',
                f'/sys/bus/pci/devices/{T4}/vendor',
            ],
            cwd=ROOT,
            text=True,
            capture_output=True,
        )
        assert (done.returncode, done.stdout, done.stderr) == (3, '0x10de\n', '')

    def test_nothing_is_left_behind(self, run, tmp_path):
        before = os.listdir('/sys'), Path('/proc/self/mounts').read_text()
        seen = run('sh', '-c', 'mount | grep cyborg-sim; echo $PATH').stdout
        assert 'cyborg-sim on /sys' in seen
        scratch = Path(seen.splitlines()[-1].split(':')[0]).parent
        assert not scratch.exists()
        assert (os.listdir('/sys'), Path('/proc/self/mounts').read_text()) == before

    def test_one_does_not_outlive_a_simulation_that_is_killed(self, described):
        simulation = subprocess.Popen(
            namespace.command_line(described, ['sh', '-c', 'echo $$; exec sleep 600']),
            cwd=ROOT,
            env=os.environ | {'PYTHONPATH': str(ROOT)},
            text=True,
            stdout=subprocess.PIPE,
        )
        with simulation.stdout as said:
            command = Path('/proc') / said.readline().strip()
        assert command.is_dir()
        simulation.kill()
        simulation.wait()
        eventually(lambda: not command.exists())

    def test_one_that_is_not_there_is_one_sentence(self, run):
        done = run('no-such-program')
        assert (done.returncode, done.stderr) == (
            1,
            'cyborg-sim: no-such-program cannot be run: No such file or directory.\n',
        )

    def test_a_host_that_cannot_be_is_one_sentence(self, run, tmp_path):
        done = run('true', path=tmp_path / 'absent.yaml')
        assert done.returncode == 1
        assert done.stderr.startswith('cyborg-sim: ')
        assert done.stderr.count('\n') == 1

    def test_a_user_namespace_will_do(self, described):
        done = subprocess.run(
            [
                sys.executable,
                '-W',
                'ignore',
                '-c',
                textwrap.dedent(f"""
            import os
            from pathlib import Path
            from cyborg.sim import namespace
            os.geteuid = lambda: 1000
            if why := namespace.why_not():
                raise SystemExit(why)
            namespace.enter(Path({str(described)!r}), ['cat', '/sys/bus/pci/devices/{T4}/vendor'])
            """),
            ],
            cwd=ROOT,
            text=True,
            capture_output=True,
        )
        if 'not allowed' in done.stderr:
            pytest.skip(done.stderr)
        assert (done.stdout, done.stderr) == ('0x10de\n', '')


def test_the_same_laws_hold_as_for_a_kernel(run, tmp_path):
    path = tmp_path / 'laws.yaml'
    path.write_text(yaml.safe_dump({'cards': [simulated.CARD]}))
    done = run(sys.executable, '-W', 'ignore', '-m', 'tests.kernel.simulated', path=path)
    assert done.stderr == ''
    assert done.stdout.splitlines() == [f'{law.__name__} holds' for law in laws.LAWS]


class TestUdev:
    def test_devices_are_listed_with_what_is_known_of_them(self, python):
        told = json.loads(
            python(f"""
            import json, pyudev
            context = pyudev.Context()
            card = pyudev.Devices.from_name(context, 'pci', '{T4}')
            print(json.dumps([
                {{kind: [each.sys_name for each in context.list_devices(subsystem=kind)]
                  for kind in ('pci', 'ptp', 'timecard', 'fpga_region', 'mdev_bus')}},
                card.driver, card['PCI_ID'], card.parent.sys_name,
                card.attributes.asstring('class')]))
            """)
        )
        assert sorted(told[0].pop('pci'))[:2] == ['0000:3a:1c.0', T4]
        assert told[0] == {
            'ptp': ['ptp0'],
            'timecard': ['ocp0'],
            'fpga_region': ['region0', 'region1'],
            'mdev_bus': [],
        }
        assert told[1:] == ['nvidia', '10DE:1EB8', '0000:3a:1c.0', '0x030200']

    def test_the_agents_monitor_hears_cards_come_and_go(self, python):
        told = json.loads(
            python(f"""
            import json, time
            from pathlib import Path
            from cyborg.agent import hotplug
            heard = []
            monitor = hotplug.UdevMonitor(lambda event: heard.append(
                [event.action, event.subsystem, event.device]), ['pci', 'mdev'])
            monitor.start()
            Path('/sys/kernel/cyborg_sim/plug_in').write_text('other')
            Path('/sys/kernel/cyborg_sim/pull_out').write_text('{T4}')
            Path('/sys/bus/pci/devices/{QAT}/sriov_numvfs').write_text('0')
            while ['remove', 'pci', '0000:6b:01.1'] not in heard:
                time.sleep(0.01)
            monitor.stop()
            print(json.dumps(heard))
            """)
        )
        assert [each for each in told if each[2] == SPARE] == [
            ['add', 'pci', SPARE],
            ['change', 'pci', SPARE],
            ['bind', 'pci', SPARE],
        ]
        assert [each[0] for each in told if each[2] == T4] == ['change', 'unbind', 'remove']
        assert [each[0] for each in told if each[2] == '0000:6b:01.0'] == ['unbind', 'remove']

    def test_an_event_says_what_the_kernel_would_say(self, python):
        told = json.loads(
            python("""
            import json, pyudev
            from pathlib import Path
            monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source='kernel')
            monitor.start()
            Path('/sys/kernel/cyborg_sim/plug_in').write_text('other')
            print(json.dumps([dict(event.properties)
                              for event in iter(lambda: monitor.poll(0.2), None)]))
            """)
        )
        card = [each for each in told if each['DEVPATH'].endswith(SPARE)]
        assert card[0]['DEVPATH'] == f'/devices/pci0000:d7/0000:d7:1c.0/{SPARE}'
        assert card[0]['PCI_ID'] == '10DE:1EB8'
        assert card[0]['MODALIAS'].startswith('pci:v000010DEd00001EB8')
        assert card[1]['MDEV_STATE'] == 'registered'
        numbers = [int(each['SEQNUM']) for each in told]
        assert numbers == sorted(set(numbers))


class TestForeignPrograms:
    def test_lspci_reads_it(self, run, need):
        need('pciutils', 'lspci')
        lines = run('lspci', '-nnD').stdout.splitlines()
        assert len(lines) == 10
        [card] = [line for line in lines if line.startswith(T4)]
        assert '[0302]' in card
        assert '[10de:1eb8]' in card
        tree = run('lspci', '-t').stdout
        assert '[0000:3a]---1c.0-[3b]----00.0' in tree

    def test_others_than_root_read_and_do_not_write(self, run):
        told = run(
            'setpriv',
            '--reuid',
            '65534',
            '--clear-groups',
            'sh',
            '-c',
            f'cd /sys/bus/pci/devices/{QAT}; cat vendor; echo 0 > sriov_numvfs; '
            'echo 1 > remove; cat sriov_numvfs',
        )
        if 'setpriv' in told.stderr:
            pytest.skip(told.stderr.strip())  # a user namespace has nobody else
        assert told.stdout.split() == ['0x8086', '2']
        assert told.stderr.count('Permission denied') == 2

    def test_a_shell_is_told_what_is_wrong(self, run):
        told = run(
            'sh',
            '-c',
            f'cd /sys/bus/pci/devices/{QAT}; /usr/bin/printf 99 > sriov_numvfs; echo x > vendor',
        ).stderr
        assert 'out of range' in told
        assert 'Permission denied' in told


def test_drivers_find_what_they_find_in_process(python, tmp_path):
    names = sorted(stevedore.ExtensionManager(driver.NAMESPACE).entry_points_names())
    conf = cfg.ConfigOpts()
    options.register(conf)
    conf([], project='cyborg', default_config_files=[], default_config_dirs=[])
    host = Host.described(tmp_path / 'sys', FACTS)
    expected = [
        comparable(device)
        for each in driver.load(names, conf, host.sysfs)
        for device in each.discover()
    ]
    assert len(expected) >= 4
    assert json.loads(python(LOOK, *names)) == expected


def test_an_agent_has_a_card_scheduled_by_the_kernels_word_alone():
    found = hotplug.by_netlink(1)
    assert found.keys() == {'plug', 'unplug'}, found


class TestControls:
    def test_what_makes_no_sense_is_refused(self, python):
        told = python("""
            import errno, os
            for name, text in (('plug_in', 'nonsense'), ('plug_in', '{model: 5}'),
                               ('plug_in', ']'), ('pull_out', 'nonsense'), ('fault', 'EIO'),
                               ('fault', 'EWHAT kernel'), ('run', 'nonsense')):
                control = os.open(f'/sys/kernel/cyborg_sim/{name}', os.O_WRONLY)
                try:
                    os.write(control, text.encode())
                except OSError as error:
                    print(errno.errorcode[error.errno])
            """)
        assert told.split() == ['EINVAL'] * 6 + ['ENOENT']

    def test_a_file_fails_on_demand_and_is_well_again(self, python):
        told = python(f"""
            import errno
            from pathlib import Path
            control = Path('/sys/kernel/cyborg_sim/fault')
            vendor = Path('/sys/bus/pci/devices/{T4}/vendor')
            def look():
                try:
                    print(vendor.read_text().strip())
                except OSError as error:
                    print(errno.errorcode[error.errno])
            look()
            control.write_text('EIO bus/pci/devices/{T4}/vendor')
            look()
            control.write_text('none bus/pci/devices/{T4}/vendor')
            look()
            """)
        assert told.split() == ['0x10de', 'EIO', '0x10de']

    def test_a_file_that_hangs_does_not_keep_others_from_being_read(self, python):
        told = python(f"""
            import threading
            from pathlib import Path
            functions = Path('/sys/bus/pci/devices')
            Path('/sys/kernel/cyborg_sim/fault').write_text('10 bus/pci/devices/{T4}/vendor')
            order = []
            def look(address):
                (functions / address / 'vendor').read_text()
                order.append(address)
            slow = threading.Thread(target=look, args=('{T4}',))
            slow.start()
            look('{QAT}')
            slow.join()
            print(*order)
            """)
        assert told.split() == [QAT, T4]

    def test_the_vendors_tools_are_there(self, run, tmp_path):
        assert 'cyborg-sim-' in run('sh', '-c', 'command -v fpgaconf').stdout
        image = tmp_path / 'image'
        image.write_text('noise')
        assert run('fpgaconf', '-B', '0x5e', image).returncode != 0


class TestWhereItIsNotPossible:
    def test_the_reason_is_one_sentence(self, monkeypatch):
        monkeypatch.setenv('PATH', '')
        assert namespace.why_not() == 'unshare is not installed: apt-get install util-linux.'
        monkeypatch.setitem(sys.modules, 'mfusepy', None)
        assert namespace.why_not().startswith('mfusepy is not installed')
