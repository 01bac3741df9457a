# SPDX-License-Identifier: Apache-2.0
"""Simulated functions are reset, and simulated disks erased, as real ones are."""

import errno
import json

import pytest

from cyborg.accelerator import pci

CARD = '0000:6b:00.0'
P = f'{pci.DEVICES}/{CARD}'


def test_a_reset_is_a_one_that_can_only_be_written(host):
    host.plug_in('8086:37c8', at=CARD, vfs=0)
    assert (host.sysfs.path / P / 'reset').stat().st_mode & 0o777 == 0o200
    assert host.sysfs.read(f'{P}/reset_method') == 'flr'
    for text, number in (('0', errno.EINVAL), ('2', errno.EINVAL), ('yes', errno.EINVAL)):
        with pytest.raises(OSError) as refused:
            host.sysfs.write(f'{P}/reset', text)
        assert refused.value.errno == number
    host.have_guest_use(CARD)
    assert host.traces(CARD) == ['registers']
    host.sysfs.write(f'{P}/reset', '1')
    assert host.traces(CARD) == []


def test_bridges_and_cards_without_the_ability_have_no_reset(host):
    host.plug_in('8086:37c8', at=CARD, vfs=0, reset=False)
    assert not host.sysfs.has(f'{P}/reset')
    assert not host.sysfs.has(f'{pci.DEVICES}/0000:6a:1c.0/reset')


def test_a_reset_may_fail_silence_the_card_or_be_counted(host):
    for number, facts in enumerate(
        ({'error': 'ENOTTY'}, {'silences': True}, {'counts': 'nonfatal'})
    ):
        host.plug_in('8086:37c8', at=f'0000:{number + 1}0:00.0', vfs=0, reset=facts)
    place = f'{pci.DEVICES}/0000:%s0:00.0'
    with pytest.raises(OSError) as refused:
        host.sysfs.write(f'{place % 1}/reset', '1')
    assert refused.value.errno == errno.ENOTTY
    for number in (2, 3):
        host.sysfs.write(f'{place % number}/reset', '1')
    assert (host.sysfs.path / (place % 2) / 'config').read_bytes() == b'\xff' * 256
    assert host.sysfs.read(f'{place % 3}/aer_dev_nonfatal').endswith('TOTAL_ERR_NONFATAL 1')
    assert host.sysfs.read(f'{place % 3}/aer_dev_fatal').endswith('TOTAL_ERR_FATAL 0')


def test_a_guest_leaves_traces_and_its_card_goes_back(host):
    host.plug_in('144d:a80a', at=CARD)
    host.have_guest_use(CARD)
    assert host.traces(CARD) == ['registers', 'namespace 1']
    assert host.sysfs.link(f'{P}/driver').name == 'nvme'
    assert [each.name for each in (host.sysfs / 'class/block').children()] == [
        'nvme0n1',
        'nvme0n1p1',
    ]
    # what is on a disk stays there, whatever becomes of the host
    host.reboot()
    assert host.traces(CARD) == ['namespace 1']


class TestNvmeCli:
    @pytest.fixture
    def nvme(self, host):
        host.plug_in(
            '144d:a80a',
            at=CARD,
            nvme={
                'namespaces': [{'data': 'guest', 'partitions': 1}, {'data': 'guest'}],
                'sanitize_reads': 2,
            },
        )
        return lambda *words: host.sysfs.run('nvme', *words)

    def test_a_format_concerns_one_namespace(self, host, nvme):
        nvme('format', '/dev/nvme0n1', '--ses=1', '--force')
        assert host.traces(CARD) == ['namespace 2']
        assert not host.sysfs.has('class/block/nvme0n1p1')
        assert host.sysfs.has('class/block/nvme0n1')

    def test_a_format_concerns_all_where_the_controller_says_so(self, host, nvme):
        host.bus.functions[CARD].facts['nvme']['fna'] = 2
        assert json.loads(nvme('id-ctrl', '/dev/nvme0', '--output-format=json'))['fna'] == 2
        nvme('format', '/dev/nvme0n1', '--ses=1', '--force')
        assert host.traces(CARD) == []

    @pytest.mark.parametrize(
        'words, said',
        [
            (('format', '/dev/nvme9n1', '--force'), 'No such file'),
            (('format', '/dev/nvme0n3', '--force'), 'No such file'),
            (('format', '/dev/sda', '--force'), 'No such file'),
            (('format', '/dev/nvme0n1', '--ses=7', '--force'), 'Invalid argument'),
            (('format', '/dev/nvme0n1', '--fast'), 'Invalid argument'),
            (('format', '/dev/nvme0n1'), 'Ctrl-C'),
            (('format', '/dev/nvme0', '--ses=1', '--force'), 'Invalid namespace'),
            (('sanitize', '/dev/nvme0', '--sanact=9'), 'Invalid Sanitize Action'),
            (('list-ns', '/dev/nvme9'), 'No such file'),
            (('list-ns', '/dev/nvme0', '--everything'), 'Invalid argument'),
            (('list-ns', '/dev/nvme0', '--all=1'), "doesn't allow an argument"),
            (('list-ns', '/dev/nvme0', '--output-format=xml'), 'Invalid argument'),
            (('wash', '/dev/nvme0'), 'Invalid sub-command'),
        ],
    )
    def test_mistakes_are_refused(self, host, nvme, words, said):
        with pytest.raises(OSError, match=f'nvme ended with .*{said}'):
            nvme(*words)
        assert host.traces(CARD) == ['namespace 1', 'namespace 2']

    def test_a_list_has_the_attached_namespaces_or_all(self, host, nvme):
        host.bus.functions[CARD].facts['nvme']['namespaces'][0]['detached'] = True
        host.bus.rebind(CARD, 'vfio-pci')
        host.bus.release(CARD)
        assert nvme('list-ns', '/dev/nvme0') == '[   0]:0x2\n'
        assert nvme('list-ns', '/dev/nvme0', '--all') == '[   0]:0x1\n[   1]:0x2\n'
        said = nvme('list-ns', '/dev/nvme0', '--all', '--output-format=json')
        assert json.loads(said) == {'nsid_list': [{'nsid': 1}, {'nsid': 2}]}
        # the kernel numbers disks as it finds them
        assert host.sysfs.read('class/block/nvme0n1/nsid') == '2'
        assert not host.sysfs.has('class/block/nvme0n2')
        nvme('format', '/dev/nvme0n1', '--ses=1', '--force')
        assert host.traces(CARD) == ['namespace 1']

    def test_a_disk_that_does_not_manage_namespaces_lists_active_ones_only(self, host, nvme):
        host.bus.functions[CARD].facts['nvme']['manages'] = False
        assert json.loads(nvme('id-ctrl', '/dev/nvme0', '--output-format=json'))['oacs'] == 2
        with pytest.raises(OSError, match='Invalid Field'):
            nvme('list-ns', '/dev/nvme0', '--all')

    def test_the_kernel_may_find_a_namespace_late(self, host, nvme):
        host.bus.functions[CARD].facts['nvme']['namespaces'][0]['late'] = 2
        host.bus.rebind(CARD, 'vfio-pci')
        host.bus.release(CARD)
        assert host.sysfs.read('class/block/nvme0n1/nsid') == '2'
        for is_found in (False, True):
            assert nvme('list-ns', '/dev/nvme0') == '[   0]:0x1\n[   1]:0x2\n'
            assert host.sysfs.has('class/block/nvme0n2') == is_found
        assert host.sysfs.read('class/block/nvme0n2/nsid') == '1'

    def test_a_disk_is_erased_when_its_sanitize_operation_is_over(self, host, nvme):
        nvme('sanitize', '/dev/nvme0', '--sanact=2')
        assert len(host.traces(CARD)) == 2
        for verb in (
            ('sanitize', '/dev/nvme0', '--sanact=2'),
            ('format', '/dev/nvme0n1', '--ses=1', '--force'),
        ):
            with pytest.raises(OSError, match='Sanitize In Progress'):
                nvme(*verb)
        states = [
            json.loads(nvme('sanitize-log', '/dev/nvme0', '--output-format=json'))['nvme0'][
                'sstat'
            ]['status'][:3]
            for _ in range(3)
        ]
        assert states == ['(2)', '(2)', '(1)']
        assert host.traces(CARD) == []
