# SPDX-License-Identifier: Apache-2.0
"""The kit passes drivers that meet the requirements, and finds each one that is not met."""

import os
import uuid

import pytest
import stevedore
from oslo_config import cfg

from cyborg import conf as options
from cyborg import errors, objects
from cyborg.accelerator import cleaning, driver, mdev, pci
from cyborg.sim import conformance

KIND = 'acme-half'
SHARED = {
    'vendor': '1234',
    'device': '5678',
    'class': '120000',
    'driver': 'acme',
    'mdev': {
        'types': {
            'half': {'name': 'Acme Half', 'max_instance': 2},
            'whole': {'name': 'Acme Whole', 'max_instance': 1},
        }
    },
}
FACTS = {'cards': [SHARED | {'at': '0000:3b:00.0'}, SHARED | {'at': '0000:af:00.0'}]}


class Good(pci.Driver):
    """Half a card for each guest."""

    name = 'acme_driver'
    type = 'AICHIP'
    writes = mdev.WRITES
    runs = mdev.RUNS
    catalogue = (pci.Model('1234', '5678', 'Acme Turbo', 'CUSTOM_NPU'),)

    def slice(self, card, model):
        kind = mdev.types(card).get(KIND)
        yield self.deployable(
            card.address, model, [self.handle(card, number) for number in range(self.room(kind))]
        )

    def handle(self, card, number):
        return objects.AttachHandle(
            key=str(number),
            type='MDEV',
            is_host_prepared=True,
            info=card.attach_info | {'asked_type': KIND, 'vgpu_mark': f'{KIND}_{number}'},
        )

    def room(self, kind):
        return (kind.max_instances or 0) if kind else 0

    def attach(self, handle, work):
        mdev.create(self.function(handle), KIND, handle.uuid)

    def detach(self, handle):
        mdev.remove(self.sysfs, handle.uuid)


@pytest.fixture
def conf():
    conf = cfg.ConfigOpts()
    options.register(conf)
    conf([], project='cyborg', default_config_files=[], default_config_dirs=[])
    return conf


@pytest.fixture
def broken(conf):
    """The requirements that a driver breaks, of those that begin so, and how."""

    def broken(cls, requirement='', **more):
        make_testbed = conformance.on_simulated_host(lambda sysfs: cls(conf, sysfs), FACTS | more)
        checks = [
            check for check in conformance.CHECKS if check.requirement.startswith(requirement)
        ]
        return {
            result.requirement: result.failure
            for result in conformance.run(make_testbed, checks)
            if result.failure is not None
        }

    return broken


def test_a_good_driver_breaks_none(broken):
    assert broken(Good) == {}


class FindsNothing(Good):
    catalogue = ()


class OffersNothing(Good):
    def slice(self, card, model):
        raise pci.Unusable('It is Sunday.')


class Meddles(Good):
    def board_info(self, function):
        function.write('driver_override', 'acme')
        return {}


class Forgets(Good):
    def discover(self):
        for device in super().discover():
            device.vendor_board_info = {'moment': str(uuid.uuid4())}
            yield device


class Counts(Good):
    def discover(self):
        for device in super().discover():
            device.key = f'group{pci.Function.at(self.sysfs, device.key).iommu_group}'
            yield device


class NeedsWhatIsLost(Good):
    def discover(self):
        for device in super().discover():
            card = pci.Function.at(self.sysfs, device.key)
            device.key += str(card.driver)  # bound by hand
            yield device


class SameKeys(Good):
    def discover(self):
        for device in super().discover():
            device.key = 'card'
            yield device


class SameNames(Good):
    def slice(self, card, model):
        for deployable in super().slice(card, model):
            deployable.name = 'part'
            yield deployable


class SamePlaces(Good):
    def handle(self, card, number):
        handle = super().handle(card, number)
        handle.info = card.attach_info | {'asked_type': KIND}
        return handle


class OddTraits(Good):
    def slice(self, card, model):
        for deployable in super().slice(card, model):
            deployable.traits = ['HW_ACME']
            yield deployable


class OddClass(Good):
    catalogue = (pci.Model('1234', '5678', 'Acme Turbo', 'npu'),)


class WrongType(Good):
    def discover(self):
        for device in super().discover():
            device.type = 'GPU'
            yield device


class TooLong(Good):
    def discover(self):
        for device in super().discover():
            device.model = 'x' * 256
            yield device


class Miscounts(Good):
    def slice(self, card, model):
        for deployable in super().slice(card, model):
            deployable.num_accelerators = 7
            yield deployable


class Orphans(Good):
    def slice(self, card, model):
        for deployable in super().slice(card, model):
            deployable.parent_name = 'nobody'
            yield deployable


class Circles(Good):
    def slice(self, card, model):
        for deployable in super().slice(card, model):
            deployable.parent_name = deployable.name
            yield deployable


class MisspellsPlaces(Good):
    def handle(self, card, number):
        handle = super().handle(card, number)
        handle.info = handle.info | {'bus': f'0x{handle.info["bus"]}'}
        return handle


class PointsNowhere(Good):
    def handle(self, card, number):
        handle = super().handle(card, number)
        handle.info = handle.info | {'function': '7'}
        return handle


class AsksForTheUnknown(Good):
    def handle(self, card, number):
        handle = super().handle(card, number)
        handle.info = handle.info | {'asked_type': 'acme-third'}
        return handle


class ReadsSecrets(Good):
    def room(self, kind):
        kind.read('create')
        return super().room(kind)


class AttachesNothing(Good):
    def attach(self, handle, work):
        pass


class AttachesOnce(Good):
    def attach(self, handle, work):
        kind = mdev.types(self.function(handle))[KIND]
        try:
            kind.write('create', handle.uuid)
        except OSError as error:
            raise errors.DriverFailed(name=self.name, why=str(error)) from error


class DetachesOnce(Good):
    def detach(self, handle):
        if not self.sysfs.has(f'{mdev.DEVICES}/{handle.uuid}'):
            raise errors.DriverFailed(name=self.name, why='It is not there.')
        super().detach(handle)


class LeavesSomething(Good):
    def attach(self, handle, work):
        self.function(handle).write('driver_override', 'acme')
        super().attach(handle, work)


class ShowsWhatIsFree(Good):
    def room(self, kind):
        return kind.available if kind else 0


class PromisesTooMuch(Good):
    def room(self, kind):
        return super().room(kind) + 1


class LocksItselfOut(Good):
    def attach(self, handle, work):
        card = self.function(handle)
        if card.read('driver_override') == 'locked':
            raise errors.DriverFailed(name=self.name, why='It is locked.')
        card.write('driver_override', 'locked')
        super().attach(handle, work)
        card.write('driver_override', '')


class PassesErrorsOn(Good):
    def attach(self, handle, work):
        if not self.sysfs.has(f'{mdev.DEVICES}/{handle.uuid}'):
            mdev.types(self.function(handle))[KIND].write('create', handle.uuid)


class WritesInSecret(Good):
    writes = mdev.WRITES[:1]


class RunsInSecret(Good):
    runs = mdev.RUNS[1:]


class TrustsFiles(Good):
    def board_info(self, function):
        return {'numa_node': str(int((function.path / 'numa_node').read_text()))}


class GivesUp(Good):
    def discover(self):
        try:
            return [
                device
                for device in super().discover()
                if int((device.std_board_info['product_id']), 16)
                and pci.Function.at(self.sysfs, device.key).number('numa_node') + 1 >= 0
            ]
        except TypeError:
            return []


class TrustsTheBus(Good):
    def discover(self):
        os.listdir(self.sysfs.path / 'bus/pci/devices')
        return super().discover()


class TrustsTheSlot(Good):
    def board_info(self, function):
        names = sorted(os.listdir(function.path))
        return {'files': str(len([name for name in names if name == 'vendor']))}


class ClingsToTheCard(Good):
    def detach(self, handle):
        if not self.function(handle).exists():
            raise errors.DriverFailed(name=self.name, why='The card is gone.')
        super().detach(handle)


class AttachesToNothing(Good):
    def attach(self, handle, work):
        if self.function(handle).exists():
            super().attach(handle, work)


class TakesAnything(Good):
    def program(self, deployable, image, properties):
        return


class Whole(pci.Driver):
    """A card for each guest."""

    name, type, catalogue = 'whole_driver', 'AICHIP', Good.catalogue
    writes = ('driver_override',)


class HidesSteps(Whole):
    def steps_for(self, handle):
        return (cleaning.Step('wash', objects.Cleaning.RESET, 'water'),)


class LosesTheCard(Whole):
    def clean(self, handle, step, deployable):
        super().clean(handle, step, deployable)
        if step == 'verify':
            self.function(handle).write('remove', '1')


class CleansNothing(Whole):
    def clean(self, handle, step, deployable):
        pass


class LocksTheCard(Whole):
    def clean(self, handle, step, deployable):
        card = self.function(handle)
        if card.read('driver_override') == 'acme':
            raise errors.DriverFailed('It is locked.')
        card.write('driver_override', 'acme')
        super().clean(handle, step, deployable)
        card.write('driver_override', '\n')


class PassesResetErrorsOn(Whole):
    def clean(self, handle, step, deployable):
        self.function(handle).write('reset', '1')


class CleansInSecret(Whole):
    def clean(self, handle, step, deployable):
        super().clean(handle, step, deployable)
        self.function(handle).write('uevent', 'change')


@pytest.mark.parametrize(
    ('cls', 'requirement', 'why'),
    [
        (FindsNothing, 'Discovery finds a device', 'no device was found'),
        (OffersNothing, 'Discovery finds a device', 'It is Sunday'),
        (Meddles, 'Discovery changes nothing', "'acme' was written"),
        (Forgets, 'Repeated discovery finds the same', 'differs between two'),
        (Counts, 'Names do not depend on the order', 'depend on the order'),
        (NeedsWhatIsLost, 'Names are the same after a reboot', 'were not found after'),
        (SameKeys, 'Keys and names are unique', 'of the device card'),
        (SameNames, 'Keys and names are unique', 'of the deployable part'),
        (SamePlaces, 'Keys and names are unique', 'of the handle with the place'),
        (OddTraits, 'Traits and resource classes', 'HW_ACME'),
        (OddClass, 'Traits and resource classes', 'resource class npu'),
        (WrongType, 'Devices can be sent', 'is of type GPU'),
        (TooLong, 'Devices can be sent', 'longer than'),
        (Miscounts, 'Deployables form a tree', 'counts 7'),
        (Orphans, 'Deployables form a tree', 'nobody, which does not exist'),
        (Circles, 'Deployables form a tree', 'is its own ancestor'),
        (MisspellsPlaces, 'Handles contain the address', 'bus'),
        (PointsNowhere, 'Handles contain the address', 'where no device is'),
        (AsksForTheUnknown, 'Handles contain the address', 'asked_type'),
        (ReadsSecrets, 'Discovery reads no file', 'create is not readable'),
        (AttachesNothing, 'Attaching and detaching can be repeated', 'changed nothing'),
        (AttachesOnce, 'Attaching and detaching can be repeated', 'DriverFailed'),
        (DetachesOnce, 'Attaching and detaching can be repeated', 'It is not there'),
        (LeavesSomething, 'Attaching and detaching can be repeated', 'driver_override'),
        (ShowsWhatIsFree, 'A handle that is in use', 'was not found while'),
        (PromisesTooMuch, 'All handles of a deployable', 'no room left'),
        (
            WritesInSecret,
            'The driver declares what it writes and runs, which',
            'it writes bus/mdev/devices/',
        ),
        (
            RunsInSecret,
            'The driver declares what it writes and runs, which',
            'it runs mdevctl list',
        ),
        (LocksItselfOut, 'Attaching or detaching that was interrupted', 'It is locked'),
        (PassesErrorsOn, 'A write that the kernel refuses', 'OSError'),
        (TrustsFiles, 'A damaged file', 'discover raised'),
        (GivesUp, 'A damaged file', 'changed the device'),
        (TrustsTheSlot, 'The removal of a card', 'discover raised'),
        (TrustsTheBus, 'A host without any card', 'FileNotFoundError'),
        (ClingsToTheCard, 'Detaching from a missing card', 'The card is gone'),
        (AttachesToNothing, 'Detaching from a missing card', 'raised no error'),
        (TakesAnything, 'An invalid image', 'accepted an invalid image'),
        (HidesSteps, 'The steps of a handle are declared', 'wash is not among its clean_steps'),
        (LosesTheCard, 'Cleaning steps can be repeated', 'changed the device'),
        (
            CleansNothing,
            'Cleaning removes what a guest wrote',
            'a guest left its registers on 0000:3b:00.0',
        ),
        (LocksTheCard, 'Cleaning that was interrupted', 'It is locked'),
        (PassesResetErrorsOn, 'A step that the kernel', 'OSError'),
        (
            CleansInSecret,
            'The driver declares what it writes and runs for cleaning',
            'it writes bus/pci/devices/0000:3b:00.0',
        ),
        (CleansNothing, 'Cleaning a missing card', 'raised no error'),
    ],
)
def test_a_requirement_that_is_not_met_is_found(broken, cls, requirement, why):
    [failure] = broken(
        cls, requirement, bound={'0000:af:00.0': 'other'} if cls is NeedsWhatIsLost else {}
    ).values()
    assert why in failure


def test_every_requirement_is_tested():
    tried = {
        mark.args[1][index][1]
        for mark in test_a_requirement_that_is_not_met_is_found.pytestmark
        for index in range(len(mark.args[1]))
    }
    # those about programming are broken in test_programming_checks
    for check in set(conformance.CHECKS) - set(conformance.PROGRAMMING_CHECKS):
        assert any(check.requirement.startswith(requirement) for requirement in tried), (
            check.requirement
        )


def test_what_cannot_be_tried_says_why(conf):
    make_testbed = conformance.on_simulated_host(lambda sysfs: Whole(conf, sysfs), FACTS)
    results = list(conformance.run(make_testbed, conformance.CHECKS))
    assert not [result for result in results if result.failure]
    skipped = {result.skipped for result in results} - {None}
    assert skipped == {
        'no handle needs preparation by the host',
        'the driver has nothing that can be programmed',
    }


def test_a_host_that_is_not_simulated_is_only_looked_at_and_served(conf, host):
    host.plug_in(**SHARED, at='0000:3b:00.0')
    make_testbed = conformance.on_real_host(lambda sysfs: Good(conf, sysfs), host.sysfs)
    results = list(conformance.run(make_testbed, conformance.CHECKS))
    assert not [result for result in results if result.failure]
    skipped = [result.requirement for result in results if result.skipped]
    assert len(skipped) == 5 + len(conformance.CLEANING_CHECKS) + len(
        conformance.PROGRAMMING_CHECKS
    )
    assert not [name for name in skipped if name.startswith(('Attaching', 'Discovery', 'Keys'))]


class TestResults:
    def test_they_are_lines(self):
        assert str(conformance.Result('It is round')) == 'ok    It is round'
        assert str(conformance.Result('It is round', failure='it is flat')) == (
            'FAIL  It is round: it is flat.'
        )
        assert str(conformance.Result('It is round', skipped='it is away')) == (
            'skip  It is round: it is away.'
        )


@pytest.mark.parametrize(
    'name', sorted(stevedore.ExtensionManager(driver.NAMESPACE).entry_points_names())
)
def test_a_driver_of_ours_passes_all_checks(name):
    conf = cfg.ConfigOpts()
    options.register(conf)
    with conformance.sample(name) as sample:
        files = ['--config-file', str(sample.options)] if sample else []
        conf(files, project='cyborg', default_config_files=[], default_config_dirs=[])
        make = conformance.by_name(name, conf)
        facts = (sample and sample.facts) or conformance.default_host(make)
        results = list(
            conformance.run(conformance.on_simulated_host(make, facts), conformance.CHECKS)
        )
    assert [str(result) for result in results if result.failure] == []
