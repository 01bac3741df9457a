# SPDX-License-Identifier: Apache-2.0
"""Making and removing mediated devices, again and again and against resistance."""

import errno
import os
import threading
import uuid

import pytest

from cyborg import errors
from cyborg.accelerator import mdev, pci

ADDRESS = '0000:3b:00.0'
ONE, OTHER = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))


@pytest.fixture
def gpu(host):
    host.plug_in('10de:1eb8', at=ADDRESS)
    return pci.Function.at(host.sysfs, ADDRESS)


def refuse(host, monkeypatch, number, before=lambda: None):
    """The kernel answers the next write with an error, after something else happened."""

    def write(path, text):
        before()
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(host.sysfs, 'writer', write)


class TestTypes:
    def test_a_parent_tells_what_it_offers(self, gpu):
        kinds = mdev.types(gpu)
        assert 'nvidia-222' in kinds
        kind = kinds['nvidia-223']
        assert (kind.title, kind.available, kind.max_instances) == ('GRID T4-2B', 8, 8)
        assert kind.instances == []

    def test_who_offers_none_has_none(self, host):
        host.plug_in('8086:4940', at='0000:6b:00.0')
        assert mdev.types(pci.Function.at(host.sysfs, '0000:6b:00.0')) == {}

    def test_what_a_vendor_leaves_out_is_absent(self, gpu):
        kind = mdev.types(gpu)['nvidia-223']
        for name in ('name', 'description', 'available_instances'):
            (kind.path / name).unlink()
        assert (kind.title, kind.available, kind.max_instances) == ('nvidia-223', 0, None)

    @pytest.mark.parametrize('noise', ['-1', '99999', '9' * 40, 'many'])
    def test_numbers_that_cannot_be_true_are_absent(self, gpu, noise):
        kind = mdev.types(gpu)['nvidia-223']
        for name, text in (
            ('available_instances', noise),
            ('description', f'max_instance={noise}'),
        ):
            (kind.path / name).unlink()
            (kind.path / name).write_text(text)
        assert (kind.available, kind.max_instances) == (0, None)


class TestCreate:
    def test_it_is_there_afterwards(self, host, gpu):
        mdev.create(gpu, 'nvidia-223', ONE)
        assert (host.sysfs / mdev.DEVICES / ONE).exists()
        assert list(mdev.instances(gpu)) == [ONE]
        assert mdev.types(gpu)['nvidia-223'].available == 7

    def test_doing_it_again_changes_nothing(self, gpu):
        mdev.create(gpu, 'nvidia-223', ONE)
        mdev.create(gpu, 'nvidia-223', ONE)
        assert list(mdev.instances(gpu)) == [ONE]

    def test_somebody_who_was_faster_did_it_for_us(self, host, gpu, monkeypatch):
        write = host.sysfs.writer
        create = mdev.types(gpu)['nvidia-223'].path / 'create'
        refuse(host, monkeypatch, errno.EEXIST, before=lambda: write(create, ONE))
        mdev.create(gpu, 'nvidia-223', ONE)
        assert list(mdev.instances(gpu)) == [ONE]

    def test_the_same_uuid_of_another_type_is_an_error(self, gpu):
        mdev.create(gpu, 'nvidia-223', ONE)
        with pytest.raises(errors.DriverFailed, match='exists already, of type nvidia-223, at '):
            mdev.create(gpu, 'nvidia-231', ONE)

    def test_the_same_uuid_on_another_card_is_an_error(self, host, gpu):
        host.plug_in('10de:1eb8', at='0000:d8:00.0')
        mdev.create(pci.Function.at(host.sysfs, '0000:d8:00.0'), 'nvidia-223', ONE)
        with pytest.raises(errors.DriverFailed, match='0000:d8:00.0; it is wanted .*0000:3b:00.0'):
            mdev.create(gpu, 'nvidia-223', ONE)

    def test_a_full_card_says_that_it_is_full(self, gpu):
        mdev.create(gpu, 'nvidia-234', ONE)
        with pytest.raises(errors.DriverFailed, match='it has no room left'):
            mdev.create(gpu, 'nvidia-234', OTHER)
        assert list(mdev.instances(gpu)) == [ONE]

    def test_a_card_that_holds_another_type_says_that_it_is_full(self, gpu):
        mdev.create(gpu, 'nvidia-223', ONE)
        with pytest.raises(errors.DriverFailed, match='it has no room left'):
            mdev.create(gpu, 'nvidia-231', OTHER)

    def test_a_type_that_is_not_offered_is_answered_with_those_that_are(self, gpu):
        with pytest.raises(errors.DriverFailed, match='type nvidia-9; it offers: nvidia-222, '):
            mdev.create(gpu, 'nvidia-9', ONE)

    def test_a_type_is_a_name_and_no_path(self, gpu):
        with pytest.raises(errors.DriverFailed, match='offers no mediated device'):
            mdev.create(gpu, '../mdev_supported_types/nvidia-223', ONE)

    def test_a_card_that_is_gone_offers_nothing(self, host, gpu):
        host.pull_out(ADDRESS)
        with pytest.raises(errors.DriverFailed, match='it offers: none'):
            mdev.create(gpu, 'nvidia-223', ONE)

    def test_a_card_that_goes_in_between_is_an_error(self, host, gpu, monkeypatch):
        refuse(host, monkeypatch, errno.ENODEV, before=lambda: host.pull_out(ADDRESS))
        with pytest.raises(errors.DriverFailed, match='No such device'):
            mdev.create(gpu, 'nvidia-223', ONE)

    def test_what_else_the_kernel_says_is_passed_on(self, host, gpu, monkeypatch):
        refuse(host, monkeypatch, errno.EIO)  # with room left it is not for want of room
        with pytest.raises(errors.DriverFailed, match='Input/output error'):
            mdev.create(gpu, 'nvidia-223', ONE)

    def test_one_that_does_not_show_in_time_is_an_error(self, host, gpu, monkeypatch):
        monkeypatch.setattr(mdev, 'PATIENCE', 0)
        monkeypatch.setattr(host.sysfs, 'writer', lambda path, text: None)
        with pytest.raises(errors.DriverFailed, match='did not appear'):
            mdev.create(gpu, 'nvidia-223', ONE)

    def test_one_that_shows_late_is_waited_for(self, host, gpu, monkeypatch):
        write = host.sysfs.writer
        late = []

        def later(path, text):
            late.append(threading.Timer(0.2, write, (path, text)))
            late[0].start()

        monkeypatch.setattr(host.sysfs, 'writer', later)
        mdev.create(gpu, 'nvidia-223', ONE)
        late[0].join()
        assert list(mdev.instances(gpu)) == [ONE]

    def test_many_at_once_take_no_more_than_there_is(self, gpu):
        results = []

        def take(number):
            try:
                mdev.create(gpu, 'nvidia-223', str(uuid.UUID(int=number)))
                results.append('made')
            except errors.DriverFailed as error:
                results.append('full' if 'no room' in str(error) else str(error))

        threads = [threading.Thread(target=take, args=(number,)) for number in range(1, 13)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(results) == ['full'] * 4 + ['made'] * 8


class TestRemove:
    def test_it_is_gone_afterwards_and_its_room_is_free(self, host, gpu):
        mdev.create(gpu, 'nvidia-234', ONE)
        mdev.remove(host.sysfs, ONE)
        assert not (host.sysfs / mdev.DEVICES / ONE).exists()
        assert mdev.types(gpu)['nvidia-234'].available == 1

    def test_what_is_not_there_is_removed_already(self, host, gpu):
        mdev.remove(host.sysfs, ONE)
        host.pull_out(ADDRESS)
        mdev.remove(host.sysfs, ONE)

    def test_one_that_goes_in_between_is_gone(self, host, gpu, monkeypatch):
        mdev.create(gpu, 'nvidia-223', ONE)
        refuse(host, monkeypatch, errno.ENODEV, before=lambda: host.pull_out(ADDRESS))
        mdev.remove(host.sysfs, ONE)

    def test_one_that_a_guest_holds_on_to_is_an_error(self, host, gpu, monkeypatch):
        mdev.create(gpu, 'nvidia-223', ONE)
        refuse(host, monkeypatch, errno.EBUSY)
        with pytest.raises(errors.DriverFailed, match=f'{ONE} cannot be removed: .*busy'):
            mdev.remove(host.sysfs, ONE)

    def test_one_that_does_not_go_in_time_is_an_error(self, host, gpu, monkeypatch):
        mdev.create(gpu, 'nvidia-223', ONE)
        monkeypatch.setattr(mdev, 'PATIENCE', 0)
        monkeypatch.setattr(host.sysfs, 'writer', lambda path, text: None)
        with pytest.raises(errors.DriverFailed, match='did not go'):
            mdev.remove(host.sysfs, ONE)


class TestDefinitions:
    """Nova has its devices started again at boot; nobody but us ends that."""

    @pytest.fixture
    def defined(self, host):
        defined = {ONE}

        def mdevctl(verb, *options):
            if verb == 'list':
                return '\n'.join(f'{each} {ADDRESS} nvidia-223 auto' for each in defined)
            defined.remove(options[-1])
            return ''

        host.tools['mdevctl'] = mdevctl
        return defined

    def test_one_is_forgotten_with_its_device(self, host, gpu, defined):
        mdev.create(gpu, 'nvidia-223', ONE)
        mdev.remove(host.sysfs, ONE)
        assert not defined

    def test_one_whose_device_was_lost_in_a_reboot_is_forgotten_too(self, host, gpu, defined):
        mdev.create(gpu, 'nvidia-223', ONE)
        host.reboot()
        mdev.remove(host.sysfs, ONE)
        assert not defined

    def test_those_of_others_stay(self, host, gpu, defined):
        mdev.create(gpu, 'nvidia-223', OTHER)
        mdev.remove(host.sysfs, OTHER)
        assert defined == {ONE}

    def test_one_that_cannot_be_forgotten_is_an_error(self, host, gpu, defined):
        def mdevctl(verb, *options):
            if verb == 'undefine':
                raise OSError('mdevctl ended with 1: read-only file system')
            return ONE

        host.tools['mdevctl'] = mdevctl
        with pytest.raises(errors.DriverFailed, match='cannot be removed: .*read-only'):
            mdev.remove(host.sysfs, ONE)

    @pytest.mark.parametrize(
        'error',
        [
            TimeoutError('mdevctl did not end within 60 seconds and was killed'),
            PermissionError('no driver that the privileged helper finds enabled runs mdevctl'),
        ],
    )
    def test_one_that_cannot_be_looked_up_is_an_error(self, host, gpu, error):
        def mdevctl(*options):
            raise error

        host.tools['mdevctl'] = mdevctl
        with pytest.raises(errors.DriverFailed, match='cannot be looked up: .*mdevctl'):
            mdev.remove(host.sysfs, ONE)
