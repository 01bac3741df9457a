# SPDX-License-Identifier: Apache-2.0
"""NVIDIA GPUs, whole and shared."""

import errno

import pytest

from cyborg import errors
from cyborg.accelerator import mdev

T4, A100, L40S = '0000:3b:00.0', '0000:af:00.0', '0000:41:00.0'
ALIEN = '91ac1606-427e-44bb-8233-f4ff4bf3d241'
#: what says that whoever attaches vGPUs can attach those of vendor-specific VFIO
VENDOR_VFIO = '[gpu_devices]\noffer_vendor_vfio = true\n'
T4_ONLY = '[gpu_devices]\nenabled_vgpu_types = nvidia-223\n'
BOTH = f"""
[gpu_devices]
enabled_vgpu_types = nvidia-223, nvidia-468
[vgpu_nvidia-223]
device_addresses = {T4}
[vgpu_nvidia-468]
device_addresses = {A100}
"""


def pictures(devices):
    """All that there is to see, whoever uses it."""
    devices = list(devices)
    for deployable in (deployable for device in devices for deployable in device.deployables):
        deployable.occupants = []
        for handle in deployable.attach_handles:
            handle.occupant = None
    return [device.obj_to_primitive() for device in devices]


@pytest.fixture
def discover(load):
    return lambda: list(load('nvidia_gpu_driver').discover())


@pytest.fixture
def handles(discover):
    """The handles of the only card."""

    def handles():
        [device] = discover()
        [deployable] = device.deployables
        return deployable.attach_handles

    return handles


class TestWholeCards:
    def test_a_card_without_a_type_is_given_out_whole(self, host, discover):
        host.plug_in('10de:1eb8', at=T4)
        [device] = discover()
        assert (device.type, device.vendor, device.model) == ('GPU', '10de', 'NVIDIA T4')
        [deployable] = device.deployables
        assert (deployable.resource_class, deployable.num_accelerators) == ('PGPU', 1)
        assert deployable.traits == ['CUSTOM_GPU_NVIDIA_T4', 'CUSTOM_NVIDIA_1EB8']
        [handle] = deployable.attach_handles
        assert (handle.type, handle.is_host_prepared) == ('PCI', False)

    def test_its_class_is_the_operators(self, conf, host, discover):
        conf.set_override('resource_class', 'CUSTOM_T4', group='nvidia_gpu_driver')
        host.plug_in('10de:1eb8', at=T4)
        assert discover()[0].deployables[0].resource_class == 'CUSTOM_T4'

    def test_a_card_that_is_newer_than_the_catalogue_is_found_by_its_class(self, host, discover):
        host.plug_in('10de:ffff', at=T4, **{'class': '030200'})
        [device] = discover()
        assert device.deployables[0].traits == ['CUSTOM_GPU_NVIDIA_GPU', 'CUSTOM_NVIDIA_FFFF']

    def test_other_things_of_the_vendor_are_not_taken_for_gpus(self, host, discover):
        host.plug_in('10de:10f0', at='0000:3b:00.1', **{'class': '040300'})  # sound
        assert discover() == []

    def test_one_with_virtual_functions_is_not_offered(self, host, discover):
        host.plug_in('10de:20b5', at=A100)
        [device] = discover()
        assert device.deployables == []
        assert 'sriov-manage -d 0000:af:00.0' in device.fault

    def test_one_that_holds_vgpus_is_not_offered(self, host, discover):
        host.plug_in('10de:1eb8', at=T4)
        kind = host.sysfs / f'bus/pci/devices/{T4}/mdev_supported_types/nvidia-223'
        kind.write('create', ALIEN)
        [device] = discover()
        assert device.deployables == []
        assert 'holds vGPUs' in device.fault

    def test_there_is_nothing_to_prepare(self, host, load, stored, handles):
        host.plug_in('10de:1eb8', at=T4)
        [handle] = map(stored, handles())
        load('nvidia_gpu_driver').attach(handle, None)
        load('nvidia_gpu_driver').detach(handle)
        assert len(handles()) == 1


class TestVgpusOnTheCard:
    @pytest.fixture(autouse=True)
    def card(self, host, configure):
        configure(T4_ONLY)
        host.plug_in('10de:1eb8', at=T4)

    def test_there_are_as_many_as_the_card_can_hold(self, discover):
        [device] = discover()
        [deployable] = device.deployables
        assert (deployable.name, deployable.resource_class) == (T4, 'VGPU')
        assert deployable.num_accelerators == 8
        assert deployable.traits == [
            'CUSTOM_GPU_NVIDIA_T4',
            'CUSTOM_NVIDIA_1EB8',
            'CUSTOM_NVIDIA_1EB8_T4_2B',
        ]

    def test_a_handle_is_what_nova_builds_libvirts_names_from(self, handles):
        handle = handles()[3]
        assert (handle.type, handle.key, handle.is_host_prepared) == ('MDEV', 'nvidia-223_3', True)
        assert handle.info == {
            'domain': '0000',
            'bus': '3b',
            'device': '00',
            'function': '0',
            'asked_type': 'nvidia-223',
            'vgpu_mark': 'nvidia-223_3',
        }

    def test_the_resource_class_is_the_operators(self, conf, discover):
        conf.set_override('vgpu_resource_class', 'CUSTOM_VGPU', group='gpu_devices')
        [device] = discover()
        assert device.deployables[0].resource_class == 'CUSTOM_VGPU'

    def test_attaching_makes_it_and_detaching_removes_it(self, host, load, stored, handles):
        driver, handle = load('nvidia_gpu_driver'), stored(handles()[0])
        for _ in range(2):
            driver.attach(handle, None)
            driver.attach(handle, None)
            assert (host.sysfs / mdev.DEVICES / handle.uuid).exists()
            driver.detach(handle)
            driver.detach(handle)
            assert not (host.sysfs / mdev.DEVICES / handle.uuid).exists()

    def test_the_card_looks_the_same_however_much_of_it_is_used(self, load, stored, discover):
        before = pictures(discover())
        for number, handle in enumerate(discover()[0].deployables[0].attach_handles, 1):
            load('nvidia_gpu_driver').attach(stored(handle, number), None)
        assert pictures(discover()) == before
        [deployable] = discover()[0].deployables
        assert len(deployable.occupants) == deployable.num_accelerators

    def test_the_whole_card_can_be_used(self, load, stored, handles):
        driver = load('nvidia_gpu_driver')
        for number, handle in enumerate(handles(), 1):
            driver.attach(stored(handle, number), None)
        with pytest.raises(errors.DriverFailed, match='no room'):
            driver.attach(stored(handles()[0], 99), None)

    def test_what_a_reboot_took_is_made_again(self, host, load, stored, handles):
        driver, handle = load('nvidia_gpu_driver'), stored(handles()[0])
        driver.attach(handle, None)
        host.reboot()
        assert not (host.sysfs / mdev.DEVICES / handle.uuid).exists()
        driver.attach(handle, None)
        assert (host.sysfs / mdev.DEVICES / handle.uuid).exists()

    def test_a_card_that_is_gone_is_an_error_to_attach_and_none_to_detach(
        self, host, load, stored, handles
    ):
        driver, handle = load('nvidia_gpu_driver'), stored(handles()[0])
        host.pull_out(T4)
        with pytest.raises(errors.DriverFailed, match=T4):
            driver.attach(handle, None)
        driver.detach(handle)

    def test_room_that_the_vendor_does_not_tell_is_counted(self, host, load, stored, handles):
        kind = host.sysfs.path / f'bus/pci/devices/{T4}/mdev_supported_types/nvidia-223'
        (kind / 'description').unlink()
        load('nvidia_gpu_driver').attach(stored(handles()[0]), None)
        assert len(handles()) == 8

    def test_a_card_that_does_not_offer_the_type_says_what_it_offers(self, host, discover):
        host.plug_in('10de:1db6', at='0000:d8:00.0')
        _, device = discover()
        assert device.deployables == []
        assert 'no vGPUs of type nvidia-223; it offers: nvidia-180, nvidia-182' in device.fault

    def test_a_card_without_its_driver_says_so(self, host, discover):
        host.plug_in('10de:1eb8', at='0000:d8:00.0', driver=None)
        _, device = discover()
        assert 'the host driver for vGPU is missing' in device.fault


class TestVgpusOnVirtualFunctions:
    @pytest.fixture(autouse=True)
    def card(self, host, configure):
        configure('[gpu_devices]\nenabled_vgpu_types = nvidia-468\n')
        host.plug_in('10de:20b5', at=A100)

    def test_one_provider_holds_as_many_as_the_card_can(self, discover):
        [device] = discover()
        [deployable] = device.deployables
        assert (deployable.name, deployable.num_accelerators) == (A100, 10)
        assert 'CUSTOM_NVIDIA_20B5_A100_4C' in deployable.traits

    def test_each_has_a_virtual_function_of_its_own(self, handles):
        places = [
            (handle.key, handle.info['device'], handle.info['function']) for handle in handles()
        ]
        assert places[:2] == [('nvidia-468_0', '00', '4'), ('nvidia-468_1', '00', '5')]
        assert places[9] == ('nvidia-468_9', '01', '5')

    def test_it_is_made_on_the_function_that_its_handle_names(self, host, load, stored, handles):
        handle = stored(handles()[5])
        load('nvidia_gpu_driver').attach(handle, None)
        parent = (host.sysfs / mdev.DEVICES).link(handle.uuid).path.parent
        assert parent.name == '0000:af:01.1'

    def test_all_of_them_can_be_used_at_a_time(self, load, stored, discover):
        before = pictures(discover())
        handles = discover()[0].deployables[0].attach_handles
        for number, handle in enumerate(handles, 1):
            load('nvidia_gpu_driver').attach(stored(handle, number), None)
        after = discover()
        assert [handle.occupant for handle in after[0].deployables[0].attach_handles] == [
            stored(handle, number).uuid for number, handle in enumerate(handles, 1)
        ]
        assert pictures(after) == before

    def test_a_function_that_somebody_else_took_is_an_error(self, host, load, stored, handles):
        driver, [first, *_] = load('nvidia_gpu_driver'), handles()
        driver.attach(stored(first, 1), None)
        with pytest.raises(errors.DriverFailed, match='no room'):
            driver.attach(stored(first, 2), None)

    def test_handles_keep_their_function_when_one_is_gone(self, host, handles):
        before = {handle.key: handle.info for handle in handles()}
        (host.sysfs.path / f'bus/pci/devices/{A100}/virtfn2').unlink()
        after = {handle.key: handle.info for handle in handles()}
        assert before.keys() - after.keys() == {'nvidia-468_2'}
        assert after.keys() - before.keys() == {'nvidia-468_10'}  # the card can hold ten
        assert all(after[key] == before[key] for key in before.keys() & after.keys())

    def test_without_virtual_functions_it_says_how_to_make_them(self, host, discover):
        host.sysfs.write(f'bus/pci/devices/{A100}/sriov_numvfs', '0')
        [device] = discover()
        assert device.deployables == []
        assert 'sriov-manage -e 0000:af:00.0' in device.fault

    def test_a_function_that_somebody_else_uses_is_not_offered(self, host, discover):
        host.sysfs.write(f'bus/pci/devices/0000:af:00.6/{mdev.TYPES}/nvidia-469/create', ALIEN)
        [device] = discover()
        [deployable] = device.deployables
        keys = [handle.key for handle in deployable.attach_handles]
        assert 'nvidia-468_2' not in keys
        # and as the card holds one type at a time, nothing can be had until it goes
        assert (deployable.num_accelerators, deployable.reserved) == (10, 10)
        host.sysfs.write(f'{mdev.DEVICES}/{ALIEN}/remove', '1')
        assert discover()[0].deployables[0].reserved == 0

    def test_the_operator_may_allow_fewer(self, configure, discover):
        configure(
            '[gpu_devices]\nenabled_vgpu_types = nvidia-468\n[vgpu_nvidia-468]\nmax_instances = 4\n'
        )
        assert discover()[0].deployables[0].num_accelerators == 4


class TestGpuInstances:
    KIND = {'name': 'NVIDIA A100-1-5C', 'max_instance': 7}

    def plug_in(self, host, count):
        sriov = {
            'total': 4,
            'enabled': 4,
            'offset': 4,
            'vf': {
                'device': '20b5',
                'driver': 'nvidia',
                'mdev': {'types': {474: self.KIND | {'gpu_instances': count}}},
            },
        }
        host.plug_in('10de:20b5', at=A100, sriov=sriov)

    @pytest.fixture(autouse=True)
    def kind(self, configure):
        configure(
            '[gpu_devices]\nenabled_vgpu_types = nvidia-474\n[vgpu_nvidia-474]\nmax_instances = 2\n'
        )

    def test_a_type_backed_by_them_says_so(self, host, discover):
        self.plug_in(host, 2)
        [deployable] = discover()[0].deployables
        assert (deployable.num_accelerators, deployable.reserved) == (2, 0)
        assert {'CUSTOM_NVIDIA_20B5_A100_1_5C', 'CUSTOM_MIG'} <= set(deployable.traits)

    def test_without_any_nothing_can_be_had(self, host, discover):
        self.plug_in(host, 0)
        [deployable] = discover()[0].deployables
        assert (deployable.num_accelerators, deployable.reserved) == (2, 2)


class TestVgpusByVendor:
    """Cards whose virtual functions take a type themselves."""

    @pytest.fixture(autouse=True)
    def card(self, host, configure):
        configure(VENDOR_VFIO + 'enabled_vgpu_types = nvidia-1150\n')
        host.plug_in('10de:26b9', at=L40S)

    def test_by_default_they_are_not_offered_since_nova_cannot_attach_them(
        self, configure, discover
    ):
        configure('[gpu_devices]\nenabled_vgpu_types = nvidia-1150\n')
        [device] = discover()
        assert not device.deployables
        assert 'set [gpu_devices] offer_vendor_vfio' in device.fault

    def current(self, host, handle):
        place = '{domain}:{bus}:{device}.{function}'.format(**handle.info)
        return host.sysfs.read(f'bus/pci/devices/{place}/nvidia/current_vgpu_type')

    def test_one_provider_holds_as_many_as_its_memory_allows(self, discover):
        [device] = discover()
        [deployable] = device.deployables
        assert (deployable.name, deployable.num_accelerators) == (L40S, 6)
        assert (deployable.resource_class, deployable.reserved) == ('VGPU', 0)
        assert deployable.traits == [
            'CUSTOM_GPU_NVIDIA_L40S',
            'CUSTOM_NVIDIA_26B9',
            'CUSTOM_NVIDIA_26B9_L40S_8Q',
        ]

    def test_a_guest_gets_the_function_that_the_host_prepared(self, host, load, stored, handles):
        handle = stored(handles()[0])
        assert (handle.type, handle.is_host_prepared) == ('PCI', True)
        assert handle.info['asked_type'] == '1150'
        driver = load('nvidia_gpu_driver')
        for verb, kind in (
            (lambda: driver.attach(handle, None), '1150'),
            (lambda: driver.detach(handle), '0'),
        ):
            verb()
            verb()
            assert self.current(host, handle) == kind

    def test_a_full_card_looks_as_before(self, load, stored, discover):
        driver = load('nvidia_gpu_driver')
        before = pictures(driver.discover())
        for handle in discover()[0].deployables[0].attach_handles:
            driver.attach(stored(handle), None)
        assert pictures(driver.discover()) == before

    def test_a_full_card_keeps_its_handles_when_the_agent_starts_anew(
        self, load, stored, handles, discover
    ):
        before = {handle.key: handle.info for handle in handles()}
        for handle in handles():
            load('nvidia_gpu_driver').attach(stored(handle), None)
        [deployable] = discover()[0].deployables
        assert {each.key: each.info for each in deployable.attach_handles} == before
        assert deployable.reserved == 0
        # what the type is called, a full card does not tell; nobody asks for it now either
        assert 'CUSTOM_NVIDIA_26B9_L40S_8Q' not in deployable.traits

    def test_what_a_reboot_took_is_made_again(self, host, load, stored, handles):
        driver, handle = load('nvidia_gpu_driver'), stored(handles()[3])
        driver.attach(handle, None)
        host.reboot()
        host.sysfs.write(f'bus/pci/devices/{L40S}/sriov_numvfs', '32')  # by the operator
        assert self.current(host, handle) == '0'
        driver.attach(handle, None)
        assert self.current(host, handle) == '1150'

    def test_a_function_that_somebody_else_uses_is_left_alone(self, host, load, stored):
        driver = load('nvidia_gpu_driver')
        first = stored(next(driver.discover()).deployables[0].attach_handles[0])
        alien = host.sysfs / f'bus/pci/devices/{L40S[:-1]}4/nvidia'
        alien.write('current_vgpu_type', '1153')
        [deployable] = next(driver.discover()).deployables
        assert first.key not in [handle.key for handle in deployable.attach_handles]
        assert (deployable.num_accelerators, deployable.reserved) == (6, 6)  # of another size
        with pytest.raises(errors.DriverFailed, match='is a vGPU of type 1153 already'):
            driver.attach(first, None)
        driver.detach(first)
        assert alien.read('current_vgpu_type') == '1153'

    def test_a_card_without_room_says_so(self, host, load, stored, handles):
        driver, found = load('nvidia_gpu_driver'), handles()
        for handle in found[:5]:
            driver.attach(stored(handle), None)
        host.sysfs.write('bus/pci/devices/0000:41:04.3/nvidia/current_vgpu_type', '1150')
        with pytest.raises(errors.DriverFailed, match='its card has no room for one'):
            driver.attach(stored(found[5]), None)

    def test_one_that_a_guest_still_uses_stays(self, host, load, stored, handles, monkeypatch):
        driver, handle = load('nvidia_gpu_driver'), stored(handles()[0])
        driver.attach(handle, None)

        def refuse(path, text):
            raise PermissionError(1, 'Operation not permitted')

        monkeypatch.setattr(host.sysfs, 'writer', refuse)
        with pytest.raises(errors.DriverFailed, match='remains a vGPU: Operation not permitted'):
            driver.detach(handle)

    @pytest.mark.parametrize('accepted_writes', [0, 1])
    @pytest.mark.parametrize('fails', [False, True])
    def test_one_whose_type_cannot_be_read_is_not_taken_for_removed(
        self, host, load, stored, handles, monkeypatch, accepted_writes, fails
    ):
        driver, handle = load('nvidia_gpu_driver'), stored(handles()[0])
        driver.attach(handle, None)
        place = '{domain}:{bus}:{device}.{function}'.format(**handle.info)
        attribute = f'bus/pci/devices/{place}/nvidia/current_vgpu_type'

        def break_reading():
            # reading a directory fails, too, and root may read everything else
            host.tree.remove(attribute)
            host.tree.directory(attribute)

        def write(path, text):
            break_reading()
            if fails:
                raise OSError(errno.EIO, 'Input/output error')

        if accepted_writes:  # it can be read until it is written
            monkeypatch.setattr(host.sysfs, 'writer', write)
        else:
            break_reading()
        for remove in (
            lambda: driver.detach(handle),
            lambda: driver.clean(handle, 'remove', L40S),
        ):
            with pytest.raises(errors.DriverFailed, match='may still be a vGPU.*cannot be read'):
                remove()

    def test_a_write_without_effect_is_told(self, host, load, stored, handles, monkeypatch):
        driver, handle = load('nvidia_gpu_driver'), stored(handles()[0])
        driver.attach(handle, None)
        monkeypatch.setattr(host.sysfs, 'writer', lambda path, text: None)
        for remove in (
            lambda: driver.detach(handle),
            lambda: driver.clean(handle, 'remove', L40S),
        ):
            with pytest.raises(errors.DriverFailed, match='remains a vGPU.$'):
                remove()

    def test_one_whose_function_goes_meanwhile_is_removed(
        self, host, load, stored, handles, monkeypatch
    ):
        driver, handle = load('nvidia_gpu_driver'), stored(handles()[0])
        driver.attach(handle, None)

        def write(path, text):
            host.pull_out(L40S)
            raise OSError(errno.ENODEV, 'No such device')

        monkeypatch.setattr(host.sysfs, 'writer', write)
        driver.detach(handle)

    def test_a_function_that_is_gone_is_an_error_to_attach_and_none_to_detach(
        self, host, load, stored, handles
    ):
        driver, handle = load('nvidia_gpu_driver'), stored(handles()[0])
        host.pull_out(L40S)
        with pytest.raises(errors.DriverFailed, match='is not a function that could be a vGPU'):
            driver.attach(handle, None)
        driver.detach(handle)

    @pytest.mark.parametrize(('text', 'count'), [('max_instances = 2', 2), ('', 6)])
    def test_the_operator_may_allow_fewer(self, configure, handles, text, count):
        configure(VENDOR_VFIO + f'enabled_vgpu_types = 1150\n[vgpu_1150]\n{text}\n')
        assert len(handles()) == count

    def test_a_type_that_is_not_offered_is_a_fault(self, configure, discover):
        configure(VENDOR_VFIO + 'enabled_vgpu_types = nvidia-7\n')
        assert 'lists no vGPU type 7' in discover()[0].fault

    def test_a_card_of_unknown_size_must_be_told_how_many(self, host, configure, discover):
        host.pull_out(L40S)
        host.plug_in(
            '10de:2901',
            at=L40S,
            driver='nvidia',
            **{'class': '030200'},
            sriov={
                'total': 2,
                'enabled': 2,
                'offset': 4,
                'vf': {
                    'device': '2901',
                    'driver': 'nvidia',
                    'vgpu': {
                        'types': {
                            1150: {
                                'name': 'NVIDIA B200X-90C',
                                'framebuffer': '90G',
                                'max_instance': 2,
                            }
                        }
                    },
                },
            },
        )
        assert 'set [vgpu_nvidia-1150] max_instances' in discover()[0].fault
        configure(
            VENDOR_VFIO + 'enabled_vgpu_types = nvidia-1150\n'
            '[vgpu_nvidia-1150]\nmax_instances = 2\n'
        )
        assert discover()[0].deployables[0].num_accelerators == 2


class TestGpuInstancesByVendor:
    IDS = VENDOR_VFIO + 'enabled_vgpu_types = 1416\n[vgpu_1416]\n'

    @pytest.fixture(autouse=True)
    def card(self, host):
        host.plug_in('10de:2335', at=A100)

    def test_each_goes_to_a_function_of_its_own(
        self, host, configure, load, stored, handles, discover
    ):
        configure(f'{self.IDS}gpu_instance_ids = 7, 8, 9\n')
        found = [stored(handle) for handle in handles()]
        assert [handle.info['gpu_instance_id'] for handle in found] == ['7', '8', '9']
        for handle in found:
            load('nvidia_gpu_driver').attach(handle, None)
        chosen = [
            host.sysfs.read(f'bus/pci/devices/0000:af:00.{n}/nvidia/gpu_instance_id')
            for n in (4, 5, 6)
        ]
        assert chosen == ['7', '8', '9']
        assert [handle.key for handle in handles()] == [handle.key for handle in found]
        assert 'CUSTOM_MIG' in discover()[0].deployables[0].traits

    def test_they_must_be_named(self, configure, discover):
        configure(self.IDS)
        assert 'set [vgpu_1416] gpu_instance_ids' in discover()[0].fault

    def test_one_that_is_not_there_is_an_error(self, configure, load, stored, handles):
        configure(f'{self.IDS}gpu_instance_ids = 3\n')
        with pytest.raises(errors.DriverFailed, match='Input/output error'):
            load('nvidia_gpu_driver').attach(stored(handles()[0]), None)


class TestOptions:
    def test_each_card_offers_the_type_that_names_it(self, host, configure, discover):
        configure(BOTH)
        host.plug_in('10de:1eb8', at=T4)
        host.plug_in('10de:1eb8', at='0000:d8:00.0')
        host.plug_in('10de:20b5', at=A100)
        assert [
            (
                device.key,
                device.deployables[0].resource_class,
                device.deployables[0].num_accelerators,
            )
            for device in discover()
        ] == [(T4, 'VGPU', 8), (A100, 'VGPU', 10), ('0000:d8:00.0', 'PGPU', 1)]

    @pytest.mark.parametrize(
        ('text', 'sentence'),
        [
            (
                '[gpu_devices]\nenabled_vgpu_types = nvidia-1,nvidia-2\n'
                '[vgpu_nvidia-1]\ndevice_addresses = 0000:3b:00.0\n',
                r'\[vgpu_nvidia-2\] device_addresses must say which cards',
            ),
            (
                '[gpu_devices]\nenabled_vgpu_types = nvidia-1\n'
                '[vgpu_nvidia-1]\ndevice_addresses = 3b:00.0\n',
                'has 3b:00.0, which is not a PCI address',
            ),
            (
                '[gpu_devices]\nenabled_vgpu_types = nvidia-1,nvidia-2\n'
                '[vgpu_nvidia-1]\ndevice_addresses = 0000:3b:00.0\n'
                '[vgpu_nvidia-2]\ndevice_addresses = 0000:3B:00.0\n',
                '0000:3b:00.0 is in the device_addresses of both nvidia-1 and nvidia-2',
            ),
            (
                '[gpu_devices]\nenabled_vgpu_types = 1\n[vgpu_1]\ngpu_instance_ids = x\n',
                r'\[vgpu_1\] gpu_instance_ids are numbers',
            ),
        ],
    )
    def test_a_mistake_is_one_sentence(self, configure, load, text, sentence):
        configure(text)
        with pytest.raises(errors.ConfigError, match=sentence):
            load('nvidia_gpu_driver')
