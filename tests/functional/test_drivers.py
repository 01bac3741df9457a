# SPDX-License-Identifier: Apache-2.0
"""Every family of devices on its way to Placement, when it comes, goes, falls ill, recovers."""

import re
import threading

import pytest

from cyborg.accelerator.drivers import intel_qat
from cyborg.agent import hotplug
from cyborg.agent.service import Agent
from cyborg.clients.placement import Placement
from cyborg.sim import nova
from cyborg.sim.spdk import Spdk
from tests.fixtures.cloud import PATIENCE, Cloud, eventually
from tests.fixtures.hosts import SimHost

pytestmark = pytest.mark.any_database
#: Nothing here may wait for the timer.
NO_TIMER = '[agent]\nresync_interval = 3600\n'
SETTINGS = (
    NO_TIMER
    + """
legacy_traits = true
[gpu_devices]
offer_vendor_vfio = true
enabled_vgpu_types = nvidia-223, nvidia-468, 1150
[vgpu_nvidia-223]
device_addresses = 0000:10:00.0
[vgpu_nvidia-468]
device_addresses = 0000:12:00.0
[vgpu_1150]
device_addresses = 0000:14:00.0
[nic_devices]
enabled_nic_types = x710_static
[x710_static]
physical_device_mappings = physnet1:0000:30:00.0
function_device_mappings = GTPv1:0000:30:00.0
[pci]
passthrough_whitelist = {"vendor_id": "1234"}
[fpga]
function_kpis = d8424dc4-a4a3-c413-f89e-433683f9040b:throughput_gbps=40
"""
)
REGION = '69528DB6_EB31_577A_8C36_68F9FAA081F6'
FUNCTION = 'D8424DC4_A4A3_C413_F89E_433683F9040B'
#: driver -> its cards, and what they should be in Placement: name -> class, total, a trait
FAMILIES = {
    'nvidia_gpu_driver': (
        ['10de:1eb8', '10de:20b5', '10de:26b9', '10de:2331'],
        {
            '10:00.0': ('VGPU', 8, 'CUSTOM_NVIDIA_1EB8_T4_2B'),
            '12:00.0': ('VGPU', 10, 'CUSTOM_NVIDIA_20B5_A100_4C'),
            '14:00.0': ('VGPU', 6, 'CUSTOM_NVIDIA_26B9_L40S_8Q'),
            '16:00.0': ('PGPU', 1, 'CUSTOM_GPU_NVIDIA_H100'),
        },
    ),
    'amd_gpu_driver': (
        ['1002:74a1', '1002:74a0'],
        {
            '18:00.0': ('VGPU', 8, 'CUSTOM_AMD_74B5'),
            '1a:00.0': ('PGPU', 1, 'CUSTOM_GPU_AMD_INSTINCT_MI300A'),
        },
    ),
    'intel_gpu_driver': (['8086:56c0'], {'1c:00.0': ('VGPU', 4, 'CUSTOM_INTEL_56C0')}),
    'huawei_ascend_driver': (['19e5:d802'], {'1e:00.0': ('CUSTOM_NPU', 1, 'CUSTOM_ASCEND_D802')}),
    'intel_qat_driver': (
        ['8086:4940', '8086:37c8'],
        {
            '20:00.0': ('CUSTOM_QAT', 16, 'CUSTOM_QAT_ASYM'),
            '22:00.0': ('CUSTOM_QAT', 16, 'CUSTOM_QAT_37C8'),
        },
    ),
    'intel_fpga_driver': (
        ['8086:09c4', '8086:bcce'],
        {
            '24:00.0': (None, 0, 'CUSTOM_FPGA_INTEL_PAC_ARRIA10'),
            '24:00.0_region0': ('FPGA', 1, f'CUSTOM_FPGA_INTEL_REGION_{REGION}'),
            '26:00.0': (None, 0, 'CUSTOM_FPGA_INTEL_N6001'),
            '26:00.0_region0': ('FPGA', 1, 'CUSTOM_FPGA_INTEL_N6001'),
            '26:00.0_region1': ('FPGA', 1, f'CUSTOM_FPGA_INTEL_FUNCTION_{FUNCTION}'),
        },
    ),
    'xilinx_fpga_driver': (
        ['10ee:5001'],
        {
            '28:00.0': (None, 0, 'CUSTOM_FPGA_XILINX_ALVEO_U200'),
            '28:00.0_region0': ('FPGA', 1, 'CUSTOM_FPGA_PRODUCT_ID_5001'),
        },
    ),
    'inspur_fpga_driver': (
        ['1bd4:0911'],
        {
            '2a:00.0': (None, 0, 'CUSTOM_FPGA_INSPUR'),
            '2a:00.0_region0': ('FPGA', 1, 'CUSTOM_FPGA_INSPUR_F10A'),
        },
    ),
    'time_sync_driver': (
        ['1d9b:0400', '18d4:1008'],
        {
            '2c:00.0': ('CUSTOM_HPTS', 1, 'CUSTOM_HPTS_GNSS'),
            '2e:00.0': ('CUSTOM_HPTS', 1, 'CUSTOM_HPTS_CELESTICA_TIME_CARD'),
        },
    ),
    'intel_nic_driver': (['8086:1572'], {'30:00.0': ('CUSTOM_NIC', 4, 'CUSTOM_GTPV1')}),
    'inspur_nvme_ssd_driver': (['1bd4:1001'], {'32:00.0': ('CUSTOM_SSD', 1, 'CUSTOM_SSD_INSPUR')}),
    'nvme_driver': (['144d:a80a'], {'34:00.0': ('CUSTOM_SSD', 1, 'CUSTOM_SSD_PRODUCT_ID_A80A')}),
    'intel_dsa_driver': (
        ['8086:0b25', '8086:0cfe'],
        {
            '36:00.0': ('CUSTOM_DSA', 1, 'CUSTOM_DSA_INTEL_DSA'),
            '38:00.0': ('CUSTOM_IAA', 1, 'CUSTOM_INTEL_0CFE'),
        },
    ),
    'pci_driver': (['1234:5678'], {'3a:00.0': ('CUSTOM_PCI', 1, 'CUSTOM_PCI_PRODUCT_ID_5678')}),
}


def offered(cloud, host='compute1'):
    """What can be had now: provider -> how many."""
    return {
        name: sum(each['total'] - each['reserved'] for each in provider['inventories'].values())
        for name, provider in cloud.providers(host).items()
    }


@pytest.fixture(scope='module')
def zoo(tmp_path_factory):
    """One host with a card of everything, its cloud and the names of its providers."""
    directory = tmp_path_factory.mktemp('zoo')
    models = [model for models, _ in FAMILIES.values() for model in models]
    cards = [
        {'model': model, 'at': f'0000:{0x10 + 2 * number:02x}:00.0'}
        for number, model in enumerate(models)
    ]
    spdk = Spdk(directory / 'spdk.sock')
    spdk.start()
    cloud = Cloud(directory, more=f'{SETTINGS}[nvmf_spdk_driver]\nsocket = {spdk.path}\n')
    cloud.start()
    cloud.host(make=SimHost, cards=cards, drivers=(*FAMILIES, 'nvmf_spdk_driver'))
    yield cloud
    cloud.stop()
    spdk.stop()


@pytest.fixture(scope='module')
def providers(zoo):
    return zoo.providers()


class TestEveryFamily:
    @pytest.mark.parametrize('driver', FAMILIES)
    def test_it_reaches_placement(self, providers, driver):
        for name, (resource_class, total, trait) in FAMILIES[driver][1].items():
            provider = providers[f'compute1_0000:{name}']
            found = {kind: each['total'] for kind, each in provider['inventories'].items()}
            assert found == ({resource_class: total} if resource_class else {}), name
            assert provider['traits'] >= {trait, 'OWNER_CYBORG'}, name
            above, is_region, _ = name.partition('_region')
            assert provider['parent'] == (f'compute1_0000:{above}' if is_region else 'compute1')

    def test_nothing_else_does(self, providers):
        expected = {f'compute1_0000:{name}' for _, names in FAMILIES.values() for name in names}
        assert providers.keys() == expected | {'compute1_spdk'}
        assert providers['compute1_spdk']['inventories'] == {}

    def test_no_driver_complains_and_no_device_is_faulty(self, zoo):
        [agent] = zoo.get('/agents')['agents']
        assert [each for each in agent['drivers'] if each['status'] != 'ok'] == []
        with zoo.standalone.db.reader() as session:
            faults = (
                session.connection()
                .exec_driver_sql('SELECT fault FROM devices WHERE fault IS NOT NULL')
                .all()
            )
        assert faults == []

    def test_old_profiles_find_what_they_ask_for(self, providers):
        traits = providers['compute1_0000:24:00.0_region0']['traits']
        assert f'CUSTOM_FPGA_REGION_INTEL_{REGION.replace("_", "")}' in traits
        assert f'CUSTOM_FPGA_FUNCTION_ID_INTEL_{FUNCTION.replace("_", "")}' in traits

    def test_figures_of_a_function_are_nested_attributes(self, zoo):
        found = zoo.get('/attributes?nested=true&key=function_uuid')['attributes']
        figures = {
            each['value']: {child['key']: child['value'] for child in each['children']}
            for each in found
        }
        assert figures[FUNCTION.replace('_', '-').lower()] == {'throughput_gbps': '40'}
        assert {'clock0_mhz': '300', 'clock1_mhz': '500'} in figures.values()


class TestFpga:
    ADDRESS = '0000:5e:00.0'
    OTHER = '8568ab4e-6ba5-4616-bb65-2a578330a8eb'

    def test_what_others_program_is_another_trait_at_the_next_look(self, tmp_path):
        cloud = Cloud(
            tmp_path,
            more=NO_TIMER + '[fpga]\nfunction_kpis = '
            f'{FUNCTION.replace("_", "-")}:throughput_gbps=40\n',
        )
        cloud.start()
        host = cloud.host(
            make=SimHost,
            drivers=['intel_fpga_driver'],
            cards=[{'model': '8086:09c4', 'at': self.ADDRESS}],
        )
        name = f'compute1_{self.ADDRESS}_region0'

        def functions():
            return {trait for trait in cloud.providers()[name]['traits'] if 'FUNCTION' in trait}

        def keys():
            return {
                each['key']
                for each in cloud.get('/attributes')['attributes']
                if each['parent_uuid']
            }

        assert functions() == {f'CUSTOM_FPGA_INTEL_FUNCTION_{FUNCTION}'}
        assert 'throughput_gbps' in keys()
        host.program(self.ADDRESS, 0, self.OTHER)
        cloud.agent().inventory.wake()  # no event tells of it: the timer finds it
        wanted = f'CUSTOM_FPGA_INTEL_FUNCTION_{self.OTHER.replace("-", "_").upper()}'
        eventually(lambda: functions() == {wanted})
        eventually(lambda: 'throughput_gbps' not in keys())
        host.pull_out(self.ADDRESS)
        eventually(lambda: not cloud.providers())
        cloud.stop()


class TestHotPlug:
    QAT = '0000:6b:00.0'

    @pytest.fixture
    def cloud(self, tmp_path):
        cloud = Cloud(tmp_path, more=NO_TIMER)
        cloud.start()
        yield cloud
        cloud.stop()

    @pytest.fixture
    def host(self, cloud):
        return cloud.host(make=SimHost, drivers=['intel_qat_driver', 'nvme_driver'])

    def test_cards_come_and_go_without_the_timer(self, cloud, host):
        assert cloud.providers() == {}
        host.plug_in('8086:4940', at=self.QAT)
        host.plug_in('144d:a80a', at='0000:c5:00.0')
        eventually(
            lambda: offered(cloud) == {f'compute1_{self.QAT}': 16, 'compute1_0000:c5:00.0': 1}
        )
        host.pull_out(self.QAT)
        eventually(lambda: offered(cloud) == {'compute1_0000:c5:00.0': 1})

    def test_the_provider_of_a_card_that_was_pulled_out_is_kept_for_its_return(self, cloud, host):
        def uuids():
            name = f'compute1_{self.QAT}'
            return [
                each['uuid']
                for each in cloud.placement.get(f'/resource_providers?name={name}').json()[
                    'resource_providers'
                ]
            ]

        host.plug_in('8086:4940', at=self.QAT)
        eventually(lambda: offered(cloud))
        before = uuids()
        host.pull_out(self.QAT)
        eventually(lambda: not offered(cloud))
        assert uuids() == before
        host.plug_in('8086:4940', at=self.QAT)
        eventually(lambda: offered(cloud))
        assert uuids() == before

    def test_virtual_functions_that_come_and_go_change_what_is_offered(self, cloud, host):
        host.plug_in('8086:4940', at=self.QAT, vfs=0)
        name = f'compute1_{self.QAT}'
        eventually(lambda: offered(cloud).get(name) == 1)
        for count, total in (('4', 4), ('0', 0), ('16', 16)):
            host.sysfs.write(f'bus/pci/devices/{self.QAT}/sriov_numvfs', count)
            eventually(lambda total=total: offered(cloud).get(name) == total)

    def test_a_card_that_is_set_up_anew_has_other_traits(self, cloud, host):
        host.plug_in('8086:4940', at=self.QAT)
        card = host.sysfs / f'bus/pci/devices/{self.QAT}/qat'
        for attribute, text in (('state', 'down'), ('cfg_services', 'dc'), ('state', 'up')):
            card.write(attribute, text)
        cloud.agent().inventory.wake()  # no event tells of it: the timer finds it
        eventually(
            lambda: (
                'CUSTOM_QAT_DC'
                in cloud.providers().get(f'compute1_{self.QAT}', {'traits': ()})['traits']
            )
        )

    def test_a_burst_of_64_virtual_functions_makes_one_round(self, cloud, host):
        host.plug_in(
            '8086:18a0',
            at=self.QAT,
            driver='c4xxx',
            **{'class': '0b4000'},
            sriov={'total': 128, 'offset': 8, 'vf': {'device': '18a1', 'driver': 'c4xxxvf'}},
        )
        eventually(lambda: offered(cloud) == {f'compute1_{self.QAT}': 1})
        inventory, events, rounds = cloud.agent().inventory, [], []
        # longer than a busy machine lets a thread wait between two events of a burst
        cloud.standalone.conf.set_override('settle_time', 10, 'agent')
        sync = inventory.sync
        inventory.sync = lambda: rounds.append(len(events)) or sync()
        unsubscribe = host.subscribe(events.append)
        host.sysfs.write(f'bus/pci/devices/{self.QAT}/sriov_numvfs', '64')
        unsubscribe()
        eventually(lambda: offered(cloud) == {f'compute1_{self.QAT}': 64})
        assert len(events) > 3 * 64
        # it began when all events had come, so that none is left to make another one; one may
        # still have been about to begin before
        assert [heard for heard in rounds if heard] == [len(events)]


def test_where_udev_is_not_to_be_had_the_timer_finds_cards(tmp_path, monkeypatch, capfd):
    def refuse():
        raise ImportError('No library named udev')

    monkeypatch.setattr(hotplug.pyudev, 'Context', refuse)

    class Container(SimHost):
        monitor = staticmethod(hotplug.UdevMonitor)

    cloud = Cloud(tmp_path, more='[agent]\nresync_interval = 1\n')
    cloud.start()
    host = cloud.host(make=Container, drivers=['nvme_driver'])
    for address in ('0000:c5:00.0', '0000:c6:00.0'):
        host.plug_in('144d:a80a', at=address)
        eventually(lambda address=address: f'compute1_{address}' in offered(cloud))
    cloud.stop()
    assert capfd.readouterr().err.count('udev is not available') == 1


class TestNamesThatPlacementRefuses:
    """Of a card that an option gives a trait that there is not, beside a healthy one."""

    QAT, CARD = '0000:6b:00.0', '0000:3a:00.0'
    OPTION = '[pci]\npassthrough_whitelist = {"vendor_id": "1234", "traits": "HW_GPU_API_VULCAN"}\n'

    @pytest.fixture
    def cloud(self, tmp_path):
        cloud = Cloud(tmp_path, more=NO_TIMER + self.OPTION)
        cloud.start()
        cloud.host(
            make=SimHost,
            drivers=['pci_driver', 'intel_qat_driver'],
            cards=[{'model': '8086:4940', 'at': self.QAT}, {'model': '1234:5678', 'at': self.CARD}],
        )
        cloud.rest()
        yield cloud
        cloud.stop()

    def test_only_that_card_suffers_and_says_why(self, cloud):
        faults = {device['type']: device['fault'] for device in cloud.get('/devices')['devices']}
        assert faults['QAT'] is None
        assert re.search('Placement refuses .*HW_GPU_API_VULCAN', faults['PCI'])
        assert offered(cloud) == {f'compute1_{self.QAT}': 16, f'compute1_{self.CARD}': 0}

    def test_it_is_offered_as_soon_as_placement_takes_it(self, cloud, monkeypatch):
        session = cloud.standalone.placement.session.session
        send = session.send

        def teach(request, **options):
            """Know that trait by another name."""
            if request.body:
                request.body = request.body.replace('HW_GPU_API_VULCAN', 'HW_GPU_API_VULKAN')
            return send(request, **options)

        monkeypatch.setattr(session, 'send', teach)
        cloud.agent().inventory.wake()
        eventually(
            lambda: offered(cloud) == {f'compute1_{self.QAT}': 16, f'compute1_{self.CARD}': 1}
        )
        assert not any(device['fault'] for device in cloud.get('/devices')['devices'])


class TestDriversThatFail:
    QAT, DISK = '0000:6b:00.0', '0000:c5:00.0'

    @pytest.fixture
    def cloud(self, tmp_path):
        cloud = Cloud(tmp_path, more=NO_TIMER)
        cloud.start()
        cloud.host(
            make=SimHost,
            drivers=['intel_qat_driver', 'nvme_driver'],
            cards=[{'model': '8086:4940', 'at': self.QAT}],
        )
        cloud.rest()
        yield cloud
        cloud.stop()

    def states(self, cloud):
        [agent] = cloud.get('/agents')['agents']
        return {each['name']: (each['status'], each['error']) for each in agent['drivers']}

    @pytest.mark.parametrize(
        'way, why',
        [('raise', 'ZeroDivisionError'), ('hang', 'did not end within 1 seconds|still hangs')],
    )
    def test_one_is_told_and_hurts_nobody_else(self, cloud, monkeypatch, way, why):
        gate = threading.Event()

        def discover(self):
            if way == 'hang':
                gate.wait(PATIENCE)
            raise ZeroDivisionError

        [guard] = [
            each for each in cloud.agent().inventory._guards if each.name == 'intel_qat_driver'
        ]
        with monkeypatch.context() as patch:
            if way == 'hang':
                patch.setattr(guard, '_timeout', 1)
            patch.setattr(intel_qat.IntelQatDriver, 'discover', discover)
            cloud.hosts['compute1'].plug_in('144d:a80a', at=self.DISK)
            # its own devices stay as they were, another driver's come
            eventually(
                lambda: offered(cloud) == {f'compute1_{self.QAT}': 16, f'compute1_{self.DISK}': 1}
            )
            status, error = self.states(cloud)['intel_qat_driver']
            assert status == 'failed' and re.search(why, error)
            assert self.states(cloud)['nvme_driver'] == ('ok', None)
        gate.set()

        def is_well():  # once the look that hung has come back
            cloud.agent().inventory.wake()
            return self.states(cloud)['intel_qat_driver'] == ('ok', None)

        eventually(is_well)


class TestHealth:
    ADDRESS = '0000:6b:00.0'
    NAME = f'compute1_{ADDRESS}'
    SERVER = '5c7a9f5e-6d1b-4a67-8d0c-0b9e0f6a2c11'

    @pytest.fixture
    def cloud(self, tmp_path):
        cloud = Cloud(tmp_path, more=NO_TIMER)
        cloud.start()
        yield cloud
        cloud.stop()

    @pytest.fixture
    def host(self, cloud):
        host = cloud.host(
            make=SimHost,
            drivers=['intel_qat_driver'],
            cards=[{'model': '8086:4940', 'at': self.ADDRESS}],
        )
        cloud.rest()  # else it may see what a test does to the card half done
        return host

    def faults(self, cloud):
        with cloud.standalone.db.reader() as session:
            return [
                row[0] for row in session.connection().exec_driver_sql('SELECT fault FROM devices')
            ]

    def handles(self, cloud):
        with cloud.standalone.db.reader() as session:
            return {
                row[0]
                for row in session.connection().exec_driver_sql('SELECT uuid FROM attach_handles')
            }

    def test_an_ill_card_is_reserved_and_comes_back_when_it_is_well(self, cloud, host):
        assert offered(cloud) == {self.NAME: 16}
        before = self.handles(cloud)
        host.show(self.ADDRESS, 'aer_dev_fatal', 'DLP 1\nTOTAL_ERR_FATAL 1')
        cloud.agent().inventory.wake()  # the kernel tells nobody: the timer finds it
        eventually(lambda: offered(cloud) == {self.NAME: 0})
        [fault] = self.faults(cloud)
        assert 'fatal PCI errors' in fault
        assert self.handles(cloud) == before
        host.show(self.ADDRESS, 'aer_dev_fatal', 'DLP 0\nTOTAL_ERR_FATAL 0')
        cloud.agent().inventory.wake()
        eventually(lambda: offered(cloud) == {self.NAME: 16})
        assert self.faults(cloud) == [None]
        assert self.handles(cloud) == before

    def test_a_guest_keeps_what_it_has_of_an_ill_card(self, cloud, host):
        cloud.profile('qat', {'resources:CUSTOM_QAT': '1'})
        [arq] = cloud.request('qat')
        assert cloud.bind(arq).status_code == 202
        host.show(self.ADDRESS, 'config', b'\xff' * 256)
        cloud.agent().inventory.wake()
        eventually(lambda: offered(cloud) == {self.NAME: 0})
        [bound] = cloud.arqs()
        assert (bound['state'], bound['attach_handle_type']) == ('Bound', 'PCI')

    def test_a_card_that_is_switched_off_offers_nothing_until_it_is_on(self, cloud, host):
        card = host.sysfs / f'bus/pci/devices/{self.ADDRESS}'
        before = self.handles(cloud)
        card.write('qat/state', 'down')
        cloud.agent().inventory.wake()  # no event tells of it: the timer finds it
        eventually(lambda: offered(cloud) == {self.NAME: 0})
        assert self.handles(cloud) == before
        assert 'is down' in self.faults(cloud)[0]
        card.write('qat/state', 'up')
        cloud.agent().inventory.wake()
        eventually(lambda: offered(cloud) == {self.NAME: 16})

    def unbind(self, host):
        """Have the driver let go of the card: its virtual functions go with that."""
        host.sysfs.write('bus/pci/drivers/4xxx/unbind', self.ADDRESS)

    def restart(self, cloud):
        cloud.standalone.remove_host('compute1')
        agent = cloud.standalone.add_host(cloud.hosts['compute1'])
        assert agent.inventory.is_ready.wait(PATIENCE)
        cloud.rest()

    def test_a_card_that_lost_its_virtual_functions_does_not_go_whole_instead(self, cloud, host):
        before = self.handles(cloud)
        self.unbind(host)
        eventually(lambda: offered(cloud) == {self.NAME: 0})
        [fault] = self.faults(cloud)
        assert 'has none now, as no driver is bound to it' in fault
        # nobody forgets what it was, nor is it given out before its functions are made anew
        self.restart(cloud)
        assert offered(cloud) == {self.NAME: 0}
        host.sysfs.write('bus/pci/drivers/4xxx/bind', self.ADDRESS)
        eventually(lambda: 'no driver' not in self.faults(cloud)[0])
        assert offered(cloud) == {self.NAME: 0}
        host.sysfs.write(f'bus/pci/devices/{self.ADDRESS}/sriov_numvfs', '16')
        eventually(lambda: offered(cloud) == {self.NAME: 16})
        assert self.faults(cloud) == [None]
        assert self.handles(cloud) == before

    def test_a_guest_keeps_its_claim_to_a_virtual_function_that_was_lost(self, cloud, host):
        cloud.profile('qat', {'resources:CUSTOM_QAT': '1'})
        [arq] = cloud.request('qat')
        assert cloud.bind(arq).status_code == 202
        self.unbind(host)
        eventually(lambda: offered(cloud) == {self.NAME: 0})
        [bound] = cloud.arqs()
        assert (bound['state'], bound['attach_handle_type']) == ('Bound', 'PCI')

    def test_binding_it_to_vfio_says_that_it_goes_whole_from_now_on(self, cloud, host):
        self.unbind(host)
        eventually(lambda: offered(cloud) == {self.NAME: 0})
        card = host.sysfs / f'bus/pci/devices/{self.ADDRESS}'
        card.write('driver_override', 'vfio-pci')
        host.sysfs.write('bus/pci/drivers_probe', self.ADDRESS)
        eventually(lambda: offered(cloud) == {self.NAME: 1})
        assert self.faults(cloud) == [None]

    def hold(self, cloud):
        cloud.profile('qat', {'resources:CUSTOM_QAT': '1'})
        assert cloud.bind(cloud.request('qat'), instance=self.SERVER).status_code == 202

    def let_go(self, cloud):
        path = f'/accelerator_requests?instance={self.SERVER}'
        assert cloud.call('DELETE', path).status_code == 204

    def test_parts_of_a_card_that_somebody_holds_whole_wait_for_him(self, cloud):
        host = cloud.host(
            make=SimHost,
            drivers=['intel_qat_driver'],
            cards=[{'model': '8086:4940', 'at': self.ADDRESS, 'vfs': 0}],
        )
        self.hold(cloud)
        host.sysfs.write(f'bus/pci/devices/{self.ADDRESS}/sriov_numvfs', '16')
        eventually(lambda: offered(cloud) == {self.NAME: 0})
        assert 'holds the whole card' in self.faults(cloud)[0]
        self.let_go(cloud)
        eventually(lambda: offered(cloud) == {self.NAME: 16})
        assert self.faults(cloud) == [None]

    def test_a_whole_card_of_which_somebody_holds_a_part_waits_for_him(self, cloud, host):
        self.hold(cloud)
        card = host.sysfs / f'bus/pci/devices/{self.ADDRESS}'
        card.write('driver_override', 'vfio-pci')
        self.unbind(host)
        host.sysfs.write('bus/pci/drivers_probe', self.ADDRESS)
        eventually(lambda: 'or a part of it' in (self.faults(cloud)[0] or ''))
        eventually(lambda: offered(cloud) == {self.NAME: 0})
        self.let_go(cloud)
        eventually(lambda: offered(cloud) == {self.NAME: 1})

    def test_a_card_that_goes_whole_may_be_between_drivers(self, cloud):
        host = cloud.host(
            make=SimHost,
            drivers=['intel_qat_driver'],
            cards=[{'model': '8086:4940', 'at': self.ADDRESS, 'vfs': 0}],
        )
        cloud.profile('qat', {'resources:CUSTOM_QAT': '1'})
        [arq] = cloud.request('qat')
        assert cloud.bind(arq).status_code == 202
        self.unbind(host)  # as libvirt does on the way to the guest
        self.restart(cloud)
        assert (offered(cloud), self.faults(cloud)) == ({self.NAME: 1}, [None])


class TestCosts:
    """8 cards of 16 virtual GPUs and 64 virtual functions of QuickAssist."""

    GPUS = [{'model': '10de:1eb8', 'at': f'0000:{0x10 + 2 * n:02x}:00.0'} for n in range(8)]
    QATS = [{'model': '8086:4940', 'at': f'0000:{0x40 + 2 * n:02x}:00.0'} for n in range(4)]

    @pytest.fixture
    def cloud(self, tmp_path):
        cloud = Cloud(tmp_path, more=NO_TIMER + '[gpu_devices]\nenabled_vgpu_types = nvidia-222\n')
        cloud.start()
        yield cloud
        cloud.stop()

    @pytest.fixture
    def counted(self, cloud, monkeypatch):
        """An agent that is about to begin, the calls it makes, and its host."""
        host = SimHost(
            'compute1',
            cloud.directory / 'compute1',
            self.GPUS + self.QATS,
            ['nvidia_gpu_driver', 'intel_qat_driver'],
        )
        nova.make_compute_node(cloud.standalone.placement, 'compute1')
        standalone = cloud.standalone
        agent = Agent(
            standalone.conf,
            standalone.transport,
            'compute1',
            Placement(standalone.placement),
            None,
            host.sysfs,
            host.monitor,
            host.drivers,
        )
        rpc, http = [], []
        conductor = agent.inventory._conductor
        for method in ('report', 'heartbeat'):
            call = getattr(conductor, method)
            monkeypatch.setattr(
                conductor,
                method,
                lambda *args, call=call, method=method: (rpc.append(method), call(*args))[1],
            )
        session = standalone.placement.session.session
        send = session.send
        monkeypatch.setattr(
            session,
            'send',
            lambda request, **options: (
                http.append((request.method, request.path_url)),
                send(request, **options),
            )[1],
        )
        return agent, rpc, http, host

    def test_a_host_costs_a_message_and_few_calls_a_provider_once(self, cloud, counted):
        agent, rpc, http, host = counted
        # the first round
        with cloud.statements() as statements:
            agent.inventory.sync()
        assert rpc == ['report']
        assert len(statements) <= 40
        count = len(self.GPUS + self.QATS)
        assert len(http) <= 3 * count
        # names that Placement has never heard of are made once in a cloud, not once a card
        names = [call for call in http if call[1].startswith(('/traits', '/resource_classes'))]
        assert len(names) == len(set(names))
        # later ones: a message that all of it is published, then nothing but heartbeats
        rpc.clear()
        http.clear()
        for _ in range(3):
            agent.inventory.sync()
        agent.inventory.beat()
        assert rpc == ['report', 'heartbeat']
        assert http == []
        assert sum(offered(cloud).values()) == 8 * 16 + 64
        # one more card costs what itself costs
        rpc.clear()
        http.clear()
        host.plug_in('10de:1eb8', at='0000:d8:00.0')
        agent.inventory.sync()
        assert rpc == ['report']
        assert len(http) <= 4  # one of them sees what is there
        assert sum(offered(cloud).values()) == 9 * 16 + 64
