# SPDX-License-Identifier: Apache-2.0
"""Cleaning functions and disks, and the reasons why it fails."""

import pytest

from cyborg import errors, objects
from cyborg.accelerator import cleaning, host_usage, nvme_erase, pci

QAT, NIC, DISK = '0000:85:00.0', '0000:3b:00.0', '0000:c1:00.0'


@pytest.fixture
def qat(host, load):
    """A card of which a guest has had one virtual function."""
    host.plug_in('8086:37c8', at=QAT, vfs=2)
    return load('intel_qat_driver')


@pytest.fixture
def disk(host, load):
    host.plug_in('144d:a80a', at=DISK, nvme={'namespaces': [{}, {}]})
    return load('nvme_driver')


@pytest.fixture
def clean(stored):
    """Clean the first handle of a driver, or the one with a key, by all steps or by some."""

    def clean(driver, *steps, key=None, before=None):
        handle, part = next(
            (handle, part)
            for device in (before or driver.discover())
            for part in device.deployables
            for handle in part.attach_handles
            if key in (None, handle.key)
        )
        handle = stored(handle)
        for step in steps or [step.name for step in driver.steps_for(handle)]:
            driver.clean(handle, step, part.name)

    return clean


def why(clean, driver, *steps, **more):
    with pytest.raises(errors.DriverFailed) as caught:
        clean(driver, *steps, **more)
    return caught.value.faultstring


def function(host, address):
    return pci.Function.at(host.sysfs, address)


def have_open(host, name, program='qemu-system-x86'):
    """A program has a device open."""
    host.tree.file('proc/4711/comm', program)
    host.tree.link('proc/4711/fd/9', f'dev/{name}')


# -- functions -----------------------------------------------------------------------------------


def test_a_function_is_reset_and_its_driver_is_bound_as_before(host, qat, clean):
    part = function(host, QAT).virtual_functions[0].address
    bound = function(host, part).driver
    host.have_guest_use(part)
    assert host.traces(part) == ['registers']
    clean(qat)
    assert host.traces(part) == []
    assert function(host, part).driver == bound is not None


def test_the_driver_of_the_host_does_not_see_the_reset(host, qat, clean, monkeypatch):
    part = function(host, QAT).virtual_functions[0].address
    bound = []
    writer = host.sysfs.writer

    def write(path, text):
        if path.name == 'reset':
            bound.append(function(host, part).driver)
        writer(path, text)

    monkeypatch.setattr(host.sysfs, 'writer', write)
    clean(qat, 'reset')
    assert bound == [None]


def test_a_function_that_is_kept_for_guests_stays_so(host, qat, clean, monkeypatch):
    part = function(host, QAT).virtual_functions[0].address
    host.bus.rebind(part, 'vfio-pci')
    host.have_guest_use(part)
    clean(qat)
    assert host.traces(part) == []
    assert function(host, part).driver == 'vfio-pci'


def test_a_function_without_a_driver_is_offered_to_the_drivers(host, qat, clean):
    part = function(host, QAT).virtual_functions[0].address
    host.sysfs.write(f'{pci.DEVICES}/{part}/driver/unbind', part)
    clean(qat)
    assert function(host, part).driver == 'c6xxvf'


@pytest.mark.parametrize('name', ['vfio/{group}', 'vfio/devices/vfio0'])
def test_a_function_that_a_guest_still_has_is_not_reset(host, qat, clean, name):
    part = function(host, QAT).virtual_functions[0]
    host.bus.rebind(part.address, 'vfio-pci')
    host.tree.directory(f'{host.tree.real(str(part.path))}/vfio-dev/vfio0')
    host.have_guest_use(part.address)
    have_open(host, name.format(group=part.iommu_group))
    assert why(clean, qat) == f'{part.address} is still in use by qemu-system-x86.'
    assert host.traces(part.address) == ['registers']


def test_a_card_with_virtual_functions_is_not_reset(host, qat, clean, load):
    before = list(qat.discover())
    before[0].deployables[0].attach_handles[0].info = function(host, QAT).attach_info
    assert 'has 2 virtual functions, which would be reset with it' in why(clean, qat, before=before)


def test_a_function_that_cannot_be_reset_is_told(host, load, clean):
    host.plug_in('8086:37c8', at=QAT, vfs=0, reset=False)
    assert 'cannot be reset on its own' in why(clean, load('intel_qat_driver'))


@pytest.mark.parametrize(
    'error, words',
    [('ENOTTY', 'Inappropriate ioctl for device'), ('EBUSY', 'Device or resource busy')],
)
def test_a_reset_that_fails_is_told_and_the_driver_is_bound_again(host, load, clean, error, words):
    host.plug_in('8086:37c8', at=QAT, vfs=0, reset={'error': error})
    assert why(clean, load('intel_qat_driver')) == f'{QAT} was not reset: {words}.'
    assert function(host, QAT).driver == 'c6xx'


def test_a_driver_that_does_not_come_back_is_told(host, load, clean):
    host.plug_in('8086:37c8', at=QAT, vfs=0)
    host.tree.fault('bus/pci/drivers_probe', 5)
    assert 'No driver can be bound' in why(clean, load('intel_qat_driver'))


def test_another_driver_that_comes_is_told(host, load, clean):
    host.plug_in('8086:37c8', at=QAT, vfs=0)
    host.sysfs.write(f'{pci.DEVICES}/{QAT}/driver_override', 'pci-stub')
    assert 'The driver c6xx is not bound to 0000:85:00.0 any more' in why(
        clean, load('intel_qat_driver')
    )


def test_a_driver_that_holds_on_is_told(host, qat, clean):
    part = function(host, QAT).virtual_functions[0].address
    host.tree.fault('bus/pci/drivers/c6xxvf/unbind', 16)
    assert why(clean, qat) == (
        f'The driver c6xxvf cannot be unbound from {part}: Device or resource busy.'
    )


def test_a_card_that_is_silent_after_its_reset_is_told(host, load, clean):
    host.plug_in('8086:37c8', at=QAT, vfs=0, reset={'silences': True})
    assert 'does not answer' in why(clean, load('intel_qat_driver'))


def test_a_virtual_function_answers_though_its_ids_read_as_ones(host, qat):
    part = function(host, QAT).virtual_functions[0]
    assert (part.path / 'config').read_bytes()[:4] == b'\xff' * 4
    assert cleaning.answers(part)
    host.tree.file(f'{host.tree.real(str(part.path))}/config', b'\xff' * 256)
    assert not cleaning.answers(part)
    host.tree.remove(f'{host.tree.real(str(part.path))}/config')
    assert not cleaning.answers(part)


@pytest.mark.parametrize(
    'severity, words',
    [('fatal', 'fatal'), ('nonfatal', 'non-fatal'), ('correctable', 'correctable')],
)
def test_errors_that_are_counted_meanwhile_are_told(host, load, clean, severity, words):
    host.plug_in('8086:37c8', at=QAT, vfs=0, reset={'counts': severity})
    driver = load('intel_qat_driver')
    before = list(driver.discover())
    assert f'{QAT} had 1 {words} PCI errors while' in why(clean, driver, before=before)
    # what was counted before does not count again
    host.bus.functions[QAT].facts['reset'] = {}
    clean(driver, before=before)


def test_an_unknown_step_is_refused(qat, clean):
    assert 'cannot be cleaned by wash' in why(clean, qat, 'wash')


def test_an_interface_that_the_host_uses_is_not_reset(host, load, clean, configure):
    configure(
        '[nic_devices]\nenabled_nic_types = x710\n[x710]\n'
        f'physical_device_mappings = physnet1:{NIC}\n'
    )
    host.plug_in('8086:1572', at=NIC, vfs=0)
    driver = load('intel_nic_driver')
    before = list(driver.discover())
    host.tree.set_text(f'{pci.DEVICES}/{NIC}/net/enp59s0f0/operstate', 'up')
    assert 'is used by the host: enp59s0f0 is up' in why(clean, driver, before=before)


def test_a_vgpu_is_cleaned_by_its_removal(host, load, configure, stored):
    configure('[gpu_devices]\nenabled_vgpu_types = nvidia-222\n')
    host.plug_in('10de:1eb8', at='0000:3b:00.0')
    driver = load('nvidia_gpu_driver')
    handle = stored(next(driver.discover()).deployables[0].attach_handles[0])
    assert driver.steps_for(handle) == (cleaning.REMOVE,)
    driver.attach(handle, None)
    driver.clean(handle, 'remove', '0000:3b:00.0')
    assert not driver.is_attached(handle)
    driver.clean(handle, 'remove', '0000:3b:00.0')


def test_a_vgpu_that_is_a_virtual_function_is_cleaned_by_its_removal(host, load, configure, stored):
    configure(
        '[gpu_devices]\nenabled_vgpu_types = nvidia-1155\noffer_vendor_vfio = true\n'
        '[vgpu_nvidia-1155]\nmax_instances = 2\n'
    )
    host.plug_in('10de:26b9', at='0000:17:00.0')
    driver = load('nvidia_gpu_driver')
    handle = stored(next(driver.discover()).deployables[0].attach_handles[0])
    assert handle.type == objects.HandleType.PCI
    assert driver.steps_for(handle) == (cleaning.REMOVE,)


def test_a_gpu_that_goes_whole_is_reset(host, load, clean):
    host.plug_in('10de:1eb8', at='0000:3b:00.0')
    host.have_guest_use('0000:3b:00.0')
    clean(load('nvidia_gpu_driver'))
    assert host.traces('0000:3b:00.0') == []


def test_levels_contain_one_another():
    steps = (cleaning.RESET, cleaning.FORMAT)
    assert [[step.is_part_of(level) for step in steps] for level in objects.Cleaning] == [
        [False, False],
        [True, False],
        [True, True],
    ]


# -- disks ---------------------------------------------------------------------------------------


def test_a_disk_is_formatted(host, disk, clean):
    before = list(disk.discover())
    host.have_guest_use(DISK)
    assert host.traces(DISK) == ['registers', 'namespace 1', 'namespace 2']
    assert host_usage.disk_use(function(host, DISK)).endswith('has partitions')
    clean(disk, before=before)
    assert host.traces(DISK) == []
    assert host_usage.disk_use(function(host, DISK)) is None
    assert function(host, DISK).driver == 'nvme'


def test_a_reset_does_not_erase_a_disk(host, disk, clean):
    before = list(disk.discover())
    host.have_guest_use(DISK)
    clean(disk, 'reset', 'verify', before=before)
    assert host.traces(DISK) == ['namespace 1', 'namespace 2']


@pytest.mark.parametrize('step', ['reset', 'format', 'verify'])
@pytest.mark.parametrize('use', [{'mounted': True}, {'holders': ['dm-0']}, {'swap': True}])
def test_a_disk_that_the_host_uses_is_not_touched(host, disk, clean, step, use):
    before = list(disk.discover())
    host.have_guest_use(DISK)
    host.bus.functions[DISK].facts['nvme']['namespaces'][1].update(use)
    host.bus.release(DISK)  # found again, with what the host made of it
    assert 'is used by the host' in why(clean, disk, step, before=before)
    assert host.traces(DISK) == ['registers', 'namespace 1', 'namespace 2']


def test_a_disk_that_is_kept_for_guests_is_lent_to_its_driver(host, disk, clean):
    host.bus.rebind(DISK, 'vfio-pci')
    host.have_guest_use(DISK)
    clean(disk)
    assert host.traces(DISK) == []
    assert function(host, DISK).driver == 'vfio-pci'
    assert function(host, DISK).read('driver_override') == 'vfio-pci'


def test_a_disk_without_a_driver_has_none_afterwards(host, disk, clean):
    before = list(disk.discover())
    host.have_guest_use(DISK)
    host.sysfs.write(f'{pci.DEVICES}/{DISK}/driver/unbind', DISK)
    clean(disk, 'format', before=before)
    assert host.traces(DISK) == ['registers']
    assert function(host, DISK).driver is None


def test_a_disk_that_was_lent_when_the_agent_died_goes_back_to_where_it_was(host, disk, clean):
    before = list(disk.discover())
    host.bus.rebind(DISK, 'nvme')  # with driver_override: so it is while it is lent
    clean(disk, 'format', before=before)
    assert function(host, DISK).driver == 'vfio-pci'


def test_an_override_of_somebody_else_is_left_alone(host, disk, clean):
    host.bus.rebind(DISK, 'pci-stub')
    assert 'its driver_override is pci-stub' in why(clean, disk, 'format')
    assert function(host, DISK).driver == 'pci-stub'


def test_a_disk_that_a_guest_still_has_is_not_formatted(host, disk, clean):
    host.bus.rebind(DISK, 'vfio-pci')
    host.have_guest_use(DISK)
    have_open(host, f'vfio/{function(host, DISK).iommu_group}')
    assert 'is still in use by qemu-system-x86' in why(clean, disk, 'format')
    assert function(host, DISK).driver == 'vfio-pci'


@pytest.mark.parametrize(
    'facts, words',
    [
        ({'formats': False}, 'Invalid Command Opcode'),
        ({'namespaces': []}, 'has no namespace any more'),
    ],
)
def test_a_format_that_fails_is_told_and_the_disk_goes_back(host, load, clean, facts, words):
    host.plug_in('144d:a80a', at=DISK, nvme=facts)
    disk = load('nvme_driver')
    host.bus.rebind(DISK, 'vfio-pci')
    assert words in why(clean, disk, 'format')
    assert function(host, DISK).driver == 'vfio-pci'


@pytest.mark.parametrize('spaces', [[{}, {'late': 3}], [{'late': 3}, {}], [{'late': 1}]])
def test_namespaces_that_the_kernel_finds_late_are_formatted(
    host, load, clean, monkeypatch, spaces
):
    monkeypatch.setattr(nvme_erase, 'PAUSE', 0)
    host.plug_in('144d:a80a', at=DISK, nvme={'namespaces': spaces})
    disk = load('nvme_driver')
    host.bus.rebind(DISK, 'vfio-pci')
    host.have_guest_use(DISK)
    clean(disk, 'format')
    assert host.traces(DISK) == ['registers']


@pytest.mark.parametrize('use', [{'mounted': True}, {'holders': ['dm-0']}])
def test_a_namespace_that_is_found_late_and_used_is_not_touched(
    host, load, clean, monkeypatch, use
):
    monkeypatch.setattr(nvme_erase, 'PAUSE', 0)
    host.plug_in('144d:a80a', at=DISK, nvme={'namespaces': [{}, {'late': 3, **use}]})
    disk = load('nvme_driver')
    host.bus.rebind(DISK, 'vfio-pci')
    host.have_guest_use(DISK)
    assert 'is used by the host' in why(clean, disk, 'format')
    assert host.traces(DISK) == ['registers', 'namespace 1', 'namespace 2']


def test_a_namespace_without_a_block_device_is_told(host, load, clean, monkeypatch):
    monkeypatch.setattr(nvme_erase, 'PATIENCE', 0.05)
    monkeypatch.setattr(nvme_erase, 'PAUSE', 0.01)
    host.plug_in('144d:a80a', at=DISK, nvme={'namespaces': [{}, {'late': 10**9}]})
    assert 'has namespaces without a block device, so they cannot be formatted: 2. See' in why(
        clean, load('nvme_driver'), 'format'
    )


@pytest.mark.parametrize('spaces', [[{}, {'detached': True}], [{'detached': True}]])
def test_a_namespace_that_a_guest_detached_is_told(host, load, clean, spaces):
    host.plug_in('144d:a80a', at=DISK, nvme={'namespaces': spaces})
    disk = load('nvme_driver')
    before = list(disk.discover())
    host.have_guest_use(DISK)
    number = len(spaces)
    sentence = why(clean, disk, 'format', before=before)
    assert f'namespaces that are not attached, so they cannot be formatted: {number}.' in sentence
    assert 'Attach them (nvme attach-ns) or delete them (nvme delete-ns), or set' in sentence
    assert f'namespace {number}' in host.traces(DISK)


def test_a_detached_namespace_is_sanitized(host, load, clean, conf, monkeypatch):
    monkeypatch.setattr(nvme_erase, 'SANITIZE_PAUSE', 0)
    conf.set_override('nvme_erase', 'sanitize-block', 'cleaning')
    host.plug_in('144d:a80a', at=DISK, nvme={'namespaces': [{}, {'detached': True}]})
    disk = load('nvme_driver')
    before = list(disk.discover())
    host.have_guest_use(DISK)
    clean(disk, 'format', before=before)
    assert host.traces(DISK) == ['registers']


def test_a_disk_that_cannot_manage_namespaces_is_formatted(host, load, clean):
    host.plug_in('144d:a80a', at=DISK, nvme={'manages': False})
    disk = load('nvme_driver')
    before = list(disk.discover())
    host.have_guest_use(DISK)
    clean(disk, before=before)
    assert host.traces(DISK) == []


@pytest.fixture
def listing(host):
    """Replace what nvme list-ns prints, or how it fails, without and with --all."""

    def listing(active, everything):
        nvme = host.tools['nvme']

        def run(verb, *options):
            if verb != 'list-ns':
                return nvme(verb, *options)
            said = everything if '--all' in options else active
            if isinstance(said, Exception):
                raise said
            return said

        host.tools['nvme'] = run

    return listing


@pytest.mark.parametrize(
    'status',
    [
        'NVMe status: INVALID_FIELD: A reserved coded value(0x4002)',
        'NVMe status: INVALID_OPCODE: The associated command opcode field is not valid(0x4001)',
        'NVMe status: Invalid Field in Command: A reserved coded value(0x2)',
        'NVMe status: Invalid Command Opcode: A reserved coded value(0x1)',
    ],
)
def test_a_controller_that_does_not_know_the_list_of_all_is_formatted(
    host, disk, clean, listing, status
):
    before = list(disk.discover())
    host.have_guest_use(DISK)
    listing('[   0]:0x1\n[   1]:0x2\n', OSError(f'nvme ended with 1: {status}'))
    clean(disk, before=before)
    assert host.traces(DISK) == []


@pytest.mark.parametrize(
    'everything, words',
    [
        (OSError('nvme ended with 1: NVMe status: Internal Error(0x6)'), 'Internal Error'),
        ('', 'does not list the attached namespaces: 1, 2.'),
        ('Index NSID\n----- ----\n    0 0x1\n    1 0x2\n    2 0x1f\n', 'not attached.*: 31.'),
    ],
)
def test_a_list_of_all_that_does_not_fit_is_told(disk, clean, listing, everything, words):
    listing('NVME Namespace List:\nIndex NSID\n    0 0x1\n    1 0x2\n', everything)
    with pytest.raises(errors.DriverFailed, match=words):
        clean(disk, 'format')


@pytest.mark.parametrize('said', ['', 'nsid 1\nnsid 2\n', '[   0]:0x2\n'])
def test_a_list_without_a_namespace_that_the_kernel_has_found_is_told(
    host, load, clean, listing, said
):
    host.plug_in('144d:a80a', at=DISK, nvme={'namespaces': [{}, {'late': 1}]})
    disk = load('nvme_driver')
    before = list(disk.discover())
    host.have_guest_use(DISK)
    listing(said, said)
    sentence = why(clean, disk, 'format', before=before)
    assert 'nvme list-ns of 0000:c1:00.0 does not list namespaces of the kernel: 1.' in sentence
    assert host.traces(DISK) == ['registers', 'namespace 1', 'namespace 2']


def test_a_controller_that_does_not_live_is_told(host, disk, clean, monkeypatch):
    monkeypatch.setattr(nvme_erase, 'PATIENCE', 0.05)
    host.tree.set_text(f'{host.tree.real("class/nvme/nvme0")}/state', 'connecting')
    assert 'is connecting, so the disk cannot be erased' in why(clean, disk, 'format')


def test_a_host_without_the_tool_is_told(host, disk, clean):
    del host.tools['nvme']
    assert 'nvme is not installed' in why(clean, disk, 'format')


def test_a_host_without_the_driver_is_told(host, disk, clean):
    host.bus.rebind(DISK, 'vfio-pci')
    host.tree.remove('bus/pci/drivers/nvme')
    assert 'The driver nvme cannot be bound to 0000:c1:00.0: it is not loaded' in why(
        clean, disk, 'format'
    )
    assert function(host, DISK).driver == 'vfio-pci'


@pytest.mark.parametrize('method', ['sanitize-block', 'sanitize-overwrite', 'sanitize-crypto'])
def test_a_disk_is_sanitized_and_waited_for(host, load, clean, conf, monkeypatch, method):
    monkeypatch.setattr(nvme_erase, 'SANITIZE_PAUSE', 0)
    conf.set_override('nvme_erase', method, 'cleaning')
    host.plug_in('144d:a80a', at=DISK, nvme={'sanitize_reads': 5})
    disk = load('nvme_driver')
    before = list(disk.discover())
    host.have_guest_use(DISK)
    clean(disk, before=before)
    assert host.traces(DISK) == []
    clean(disk, before=before)


def test_a_sanitize_operation_that_runs_already_is_waited_for(host, load, clean, conf, monkeypatch):
    monkeypatch.setattr(nvme_erase, 'SANITIZE_PAUSE', 0)
    conf.set_override('nvme_erase', 'sanitize-block', 'cleaning')
    host.plug_in('144d:a80a', at=DISK, nvme={'sanitize_reads': 5})
    host.sysfs.run('nvme', 'sanitize', '/dev/nvme0', '--sanact=2')
    clean(load('nvme_driver'), 'format')


@pytest.mark.parametrize(
    'facts, words',
    [
        ({'sanitizes': False}, 'Invalid Command Opcode'),
        ({'sanitize_fails': True}, 'was not sanitized'),
    ],
)
def test_a_sanitize_operation_that_fails_is_told(
    host, load, clean, conf, monkeypatch, facts, words
):
    monkeypatch.setattr(nvme_erase, 'SANITIZE_PAUSE', 0)
    conf.set_override('nvme_erase', 'sanitize-block', 'cleaning')
    host.plug_in('144d:a80a', at=DISK, nvme=facts)
    assert words in why(clean, load('nvme_driver'), 'format')


@pytest.mark.parametrize(
    'log',
    [
        '{"nvme0": {"sstat": 257}}',
        '{"sstat": 1}',
        '{"nvme0": {"sstat": {"Completed": "(1) Completed"}}}',
    ],
)
def test_other_forms_of_the_log_are_understood(host, disk, clean, conf, log):
    conf.set_override('nvme_erase', 'sanitize-block', 'cleaning')
    host.tools['nvme'] = lambda verb, *options: log if verb == 'sanitize-log' else ''
    clean(disk, 'format')


@pytest.mark.parametrize('log', ['', '[]', '{"nvme0": {}}', '{"nvme0": {"sstat": "?"}}'])
def test_a_log_that_says_nothing_is_told(host, disk, clean, conf, log):
    conf.set_override('nvme_erase', 'sanitize-block', 'cleaning')
    host.tools['nvme'] = lambda verb, *options: log
    assert why(clean, disk, 'format').startswith(('0000:c1:00.0 does not report', 'nvme sanitize'))


@pytest.fixture
def divided(host, load):
    """A disk whose virtual functions the host's driver takes."""

    def divided(**facts):
        host.plug_in(
            '1b36:0010',
            at=DISK,
            driver='pci-pf-stub',
            sriov={
                'total': 4,
                'enabled': 2,
                'offset': 1,
                'vf': {'device': '0010', 'driver': 'nvme', 'nvme': {'serial': 'V', **facts}},
            },
        )
        driver = load('nvme_driver')
        part = function(host, DISK).virtual_functions[0].address
        before = list(driver.discover())
        host.have_guest_use(part)
        return driver, part, before

    return divided


def test_a_virtual_function_is_formatted(host, divided, clean):
    driver, part, before = divided()
    clean(driver, before=before)
    assert host.traces(part) == []


def test_a_format_that_concerns_other_guests_is_refused(host, divided, clean):
    driver, part, before = divided(fna=2)
    assert 'would format the namespaces of other virtual functions' in why(
        clean, driver, before=before
    )
    assert 'namespace 1' in host.traces(part)


def test_a_virtual_function_is_not_sanitized(host, divided, clean, conf):
    conf.set_override('nvme_erase', 'sanitize-block', 'cleaning')
    driver, _, before = divided()
    assert 'would erase the whole disk' in why(clean, driver, before=before)


def test_root_formats_disks_that_the_driver_has_and_the_host_does_not_use(host, disk):
    host.plug_in('144d:a80a', at='0000:c5:00.0', nvme={'namespaces': [{'mounted': True}]})
    wanted = ('nvme', 'format', '/dev/nvme0n2', '--ses=1', '--force', '--timeout=1000')
    assert disk.may_run(wanted)
    for number, word in (
        (1, 'write'),
        (2, '/dev/nvme1n1'),
        (2, '/dev/sda'),
        (3, '--ses=0'),
        (2, '/dev/nvme0n2/../sda'),
        (0, 'sh'),
    ):
        assert not disk.may_run((*wanted[:number], word, *wanted[number + 1 :]))
    assert disk.may_run(('nvme', 'list-ns', '/dev/nvme0'))
    assert disk.may_run(('nvme', 'list-ns', '/dev/nvme0', '--all'))
    assert not disk.may_run(('nvme', 'list-ns', '/dev/nvme1', '--all'))
    assert not disk.may_run(('nvme', 'list-ns', '/dev/nvme0', '--raw-binary'))


def test_a_disk_that_the_operator_keeps_for_the_host_is_not_touched(host, disk, clean, conf):
    before = list(disk.discover())
    conf.set_override('host_addresses', [DISK.upper()], 'nvme_driver')
    for step in ('reset', 'format', 'verify'):
        assert 'its card is kept for it' in why(clean, disk, step, before=before)
    assert not disk.may_run(
        ('nvme', 'format', '/dev/nvme0n1', '--ses=1', '--force', '--timeout=1000')
    )
    assert not disk.may_write(host.sysfs.path / 'bus/pci/drivers_probe', DISK)
    assert not disk.may_write((host.sysfs.path / pci.DEVICES / DISK).resolve() / 'reset', '1')


def test_root_binds_drivers_to_functions_of_the_driver_only(host, disk):
    host.plug_in('8086:37c8', at=QAT, vfs=0)
    bus = host.sysfs.path / 'bus/pci'
    assert disk.may_write(bus / 'drivers_probe', DISK)
    assert disk.may_write(bus / 'drivers/nvme/unbind', DISK)
    assert not disk.may_write(bus / 'drivers/nvme/unbind', QAT)
    assert not disk.may_write(bus / 'drivers/nvme/new_id', DISK)
    assert not disk.may_write(bus / 'drivers_probe', '0000:00:00.0/../x')
    real = (host.sysfs.path / pci.DEVICES / DISK).resolve()
    assert disk.may_write(real / 'reset', '1')
    assert disk.may_write(real / 'driver_override', 'nvme')
    assert not disk.may_write(real / 'remove', '1')
    assert not disk.may_write((host.sysfs.path / pci.DEVICES / QAT).resolve() / 'reset', '1')


def test_versions_are_told_as_far_as_they_are_known(host, disk, stored):
    host.tree.file('module/nvme/version', '1.0')
    host.tree.link('bus/pci/drivers/nvme/module', 'module/nvme')
    host.tree.file('proc/sys/kernel/osrelease', '6.12.1')
    handle = stored(next(disk.discover()).deployables[0].attach_handles[0])
    assert disk.versions(handle) == {
        'kernel': '6.12.1',
        'kernel_driver': 'nvme',
        'kernel_driver_version': '1.0',
        'firmware': '1.0',
    }
    host.pull_out(DISK)
    assert disk.versions(handle) == {'kernel': '6.12.1'}
