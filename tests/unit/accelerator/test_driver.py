# SPDX-License-Identifier: Apache-2.0
"""Loading drivers, and the devices of the fake one."""

from importlib import metadata

import pytest
from oslo_config import cfg

from cyborg import errors, objects
from cyborg.accelerator import driver
from cyborg.accelerator.sysfs import Sysfs
from cyborg.conf import opts


@pytest.fixture
def entry_points(monkeypatch):
    """Further drivers, as another package would bring them: name -> what it points to."""
    known = {}

    def find(manager):
        return [metadata.EntryPoint(name, value, driver.NAMESPACE) for name, value in known.items()]

    monkeypatch.setattr(driver.stevedore.NamedExtensionManager, 'list_entry_points', find)
    return known


class Broken(driver.Driver):
    name = 'broken'
    type = 'GPU'

    def __init__(self, conf, sysfs):
        raise OSError('no licence')

    def discover(self):
        return []


class Plain(driver.Driver):
    name = 'plain'
    type = 'GPU'

    def discover(self):
        return []


def test_drivers_come_in_the_order_they_were_named(conf, tmp_path):
    names = ['time_sync_driver', 'fake_driver', 'intel_qat_driver']
    assert [each.name for each in driver.load(names, conf, Sysfs(tmp_path))] == names


def test_a_driver_named_twice_is_loaded_once(conf, tmp_path):
    assert len(driver.load(['fake_driver', 'fake_driver'], conf, Sysfs(tmp_path))) == 1


def test_an_unknown_name_is_answered_with_the_known_ones(conf, tmp_path):
    with pytest.raises(errors.DriverNotFound) as caught:
        driver.load(['fake_driver', 'fakir'], conf, Sysfs(tmp_path))
    assert 'There is no driver fakir; known drivers: amd_gpu_driver, ' in str(caught.value)


def test_a_driver_that_cannot_be_imported_is_named_in_one_sentence(conf, tmp_path, entry_points):
    entry_points['gone'] = 'cyborg.no_such_module:Driver'
    with pytest.raises(errors.ConfigError, match='Driver gone does not load: .*no_such_module'):
        driver.load(['gone'], conf, Sysfs(tmp_path))


def test_a_driver_that_does_not_start_is_named_in_one_sentence(conf, tmp_path, entry_points):
    entry_points['broken'] = f'{__name__}:Broken'
    with pytest.raises(errors.ConfigError, match='Driver broken does not start: .*no licence'):
        driver.load(['broken'], conf, Sysfs(tmp_path))


def test_a_driver_must_bear_the_name_it_is_found_by(conf, tmp_path, entry_points):
    entry_points['other'] = f'{__name__}:Plain'
    with pytest.raises(
        errors.ConfigError, match='Driver other is not a Driver class with that name'
    ):
        driver.load(['other'], conf, Sysfs(tmp_path))


class Configured(Plain):
    name = 'configured'
    options = (cfg.IntOpt('speed', default=1, min=1),)


class Contradicting(Plain):
    name = 'contradicting'
    option_groups = {'configured': (cfg.IntOpt('speed', default=2),)}


def test_a_value_that_is_not_valid_is_told_when_the_driver_is_loaded(
    conf, configure, tmp_path, entry_points
):
    entry_points['configured'] = f'{__name__}:Configured'
    configure('[configured]\nspeed = 0\n')
    with pytest.raises(errors.ConfigError, match='Driver configured cannot .*speed'):
        driver.load(['configured'], conf, Sysfs(tmp_path))


def test_drivers_that_declare_an_option_differently_do_not_run_together(
    conf, tmp_path, entry_points
):
    entry_points['configured'] = f'{__name__}:Configured'
    entry_points['contradicting'] = f'{__name__}:Contradicting'
    with pytest.raises(errors.ConfigError, match='Driver contradicting .*duplicate.*speed'):
        driver.load(['configured', 'contradicting'], conf, Sysfs(tmp_path))


def test_a_driver_that_cannot_be_imported_keeps_no_other_from_the_sample(entry_points, caplog):
    entry_points['configured'] = f'{__name__}:Configured'
    entry_points['gone'] = 'cyborg.no_such_module:Driver'
    groups = dict(opts.list_opts())
    assert [each.name for each in groups['configured']] == ['speed']
    assert 'gone' not in groups
    assert 'Driver gone does not load' in caplog.text


def test_an_option_that_drivers_share_is_listed_once():
    groups = dict(opts.list_opts())
    assert [each.name for each in groups['fpga']].count('blank_images') == 1
    assert [each.name for each in groups['cleaning']].count('nvme_erase') == 1


def test_attach_and_detach_do_nothing_unless_a_driver_says_so(conf, tmp_path):
    plain = Plain(conf, Sysfs(tmp_path))
    handle = objects.AttachHandle(key='0', type='PCI', info={})
    assert plain.attach(handle, None) is None
    assert plain.detach(handle) is None


def test_a_driver_that_cannot_program_says_so(conf, tmp_path):
    with pytest.raises(errors.DriverFailed, match='0000:3b:00.0 cannot be programmed'):
        Plain(conf, Sysfs(tmp_path)).program('0000:3b:00.0', tmp_path / 'image', {})


class TestFakeDriver:
    def discover(self, conf):
        [fake] = driver.load(['fake_driver'], conf, Sysfs('nowhere'))
        return list(fake.discover())

    def test_it_has_what_tests_of_clouds_rely_on(self, conf):
        [device] = self.discover(conf)
        assert (device.type, device.vendor, device.key) == ('FPGA', '0xABCD', 'FakeDevice')
        [path] = device.control_paths
        assert path.type == 'PCI'
        assert path.info == {'domain': '0000', 'bus': '0c', 'device': '00', 'function': '0'}
        [deployable] = device.deployables
        assert (deployable.name, deployable.driver_name) == ('FakeDevice', 'fake')
        assert (deployable.resource_class, deployable.num_accelerators) == ('FPGA', 16)
        assert deployable.traits == ['CUSTOM_FAKE_DEVICE']
        assert {each.key: each.value for each in deployable.attributes} == {
            'traits1': 'CUSTOM_FAKE_DEVICE',
            'rc': 'FPGA',
        }

    def test_its_handles_count_up_and_no_two_are_alike(self, conf):
        [device] = self.discover(conf)
        handles = device.deployables[0].attach_handles
        assert {each.type for each in handles} == {'TEST_PCI'}
        assert not any(each.is_host_prepared for each in handles)
        places = [(each.info['device'], each.info['function']) for each in handles]
        assert places[:2] == [('0', '1'), ('0', '2')]
        assert places[6:9] == [('0', '7'), ('1', '0'), ('1', '1')]
        assert len(set(places)) == len({each.key for each in handles}) == 16

    def test_it_looks_the_same_every_time(self, conf):
        assert [each.obj_to_primitive() for each in self.discover(conf)] == [
            each.obj_to_primitive() for each in self.discover(conf)
        ]

    def test_it_can_have_more_or_fewer_of_everything(self, conf):
        conf.set_override('devices', 3, group='fake_driver')
        conf.set_override('accelerators', 2, group='fake_driver')
        found = self.discover(conf)
        assert [each.key for each in found] == ['FakeDevice', 'FakeDevice1', 'FakeDevice2']
        assert [each.deployables[0].num_accelerators for each in found] == [2, 2, 2]
        assert len({each.control_paths[0].info['bus'] for each in found}) == 3
