# SPDX-License-Identifier: Apache-2.0
"""A region is blanked after a request: what it did is gone, everybody can see that, and the next
request that needs it has it loaded again."""

import threading

import pytest

from tests.fixtures.cloud import PATIENCE, Cloud, eventually
from tests.fixtures.compute import Hypervisor
from tests.fixtures.fpga import (
    ADDRESS,
    FIRST_FUNCTION,
    FUNCTION,
    NOTHING,
    REGION_TYPE,
    FpgaHost,
    gbs,
    shared_card,
)
from tests.fixtures.hosts import SimHost
from tests.fixtures.threads import in_thread

REGION = f'compute1_{ADDRESS}_region0'
FUNCTION_TRAIT = f'CUSTOM_FPGA_INTEL_FUNCTION_{FUNCTION.upper().replace("-", "_")}'
BLANKED = {'resources:FPGA': '1', 'accel:cleaning': 'full'}


@pytest.fixture
def cloud(tmp_path):
    (tmp_path / 'blank.gbs').write_bytes(gbs(NOTHING))
    made = Cloud(tmp_path, more=f'[fpga]\nblank_images = {REGION_TYPE}:{tmp_path}/blank.gbs\n')
    made.start()
    yield made
    made.stop()


@pytest.fixture
def host(cloud):
    return cloud.host(make=FpgaHost)


@pytest.fixture
def image(cloud):
    made = cloud.glance.add(
        gbs(), visibility='public', function_uuid=FUNCTION, region_uuid=REGION_TYPE
    )
    cloud.profile('by-image', BLANKED | {'accel:bitstream_id': made})
    cloud.profile('by-function', BLANKED | {'accel:function_id': FUNCTION})
    return made


def region(cloud):
    [found] = cloud.get(f'/deployables?name={REGION}')['deployables']
    return found


def published(cloud):
    return cloud.providers()[REGION]


def bound(cloud, profile):
    [arq] = cloud.request(profile)
    answer = cloud.bind(arq)
    assert answer.status_code == 202, answer.text
    return cloud.get(f'/accelerator_requests/{arq["uuid"]}')


def delete(cloud, arq):
    answer = cloud.call('DELETE', f'/accelerator_requests?arqs={arq["uuid"]}')
    assert answer.status_code == 204, answer.text


def blanked(cloud):
    """The region is blank, everybody can see that, and it can be had."""
    found = published(cloud)
    return (
        FUNCTION_TRAIT not in found['traits']
        and found['inventories']['FPGA']['reserved'] == 0
        and FUNCTION not in region(cloud)['attributes_list']
        and region(cloud)['bitstream_id'] is None
    )


@pytest.mark.parametrize('profile', ['by-image', 'by-function'])
@pytest.mark.parametrize('was_seen', [True, False], ids=['seen', 'never seen'])
def test_what_was_blanked_is_loaded_again(cloud, host, image, profile, was_seen):
    """A guest that starts at once hides what was loaded before anybody has looked."""
    hypervisor = Hypervisor(host)
    for times in (1, 2):
        arq = bound(cloud, profile)
        if was_seen:
            eventually(lambda: FUNCTION_TRAIT in published(cloud)['traits'])
        hypervisor.attach([arq])
        assert region(cloud)['bitstream_id'] == image
        hypervisor.detach([arq])
        delete(cloud, arq)
        eventually(lambda: blanked(cloud))
        assert [path.endswith('blank.gbs') for path in host.loaded] == [False, True] * times


@pytest.mark.parametrize('profile', ['by-image', 'by-function'])
@pytest.mark.parametrize('was_seen', [True, False], ids=['seen', 'never seen'])
def test_who_binds_at_once_does_not_get_what_is_blank(cloud, host, image, profile, was_seen):
    """Nova gives the place of a deleted server to the next one before the host is done."""
    arq, rp = bound(cloud, profile), cloud.rp()
    if was_seen:
        eventually(lambda: FUNCTION_TRAIT in published(cloud)['traits'])
    delete(cloud, arq)
    [second] = cloud.request(profile)
    answer = cloud.bind(second, rp=rp)
    assert answer.status_code == 202, answer.text
    assert [path.endswith('blank.gbs') for path in host.loaded] == [False, True, False]
    assert region(cloud)['bitstream_id'] == image
    eventually(lambda: FUNCTION_TRAIT in published(cloud)['traits'])


def test_a_region_that_cannot_be_blanked_is_kept_from_others(cloud, host, image):
    arq, rp = bound(cloud, 'by-image'), cloud.rp()
    host.is_broken = True
    delete(cloud, arq)
    reason = eventually(lambda: region(cloud)['quarantine_reason'])
    assert 'blank' in reason and 'The card does not answer' in reason
    eventually(lambda: published(cloud)['inventories']['FPGA']['reserved'] == 1)
    [second] = cloud.request('by-image')
    assert cloud.bind(second, rp=rp).status_code == 409


def test_a_function_that_was_replaced_is_not_taken_for_one_that_is_loaded(
    cloud, host, image, monkeypatch
):
    """Until the host has looked again, the region still shows what it did before."""
    cloud.profile('first', {'resources:FPGA': '1', 'accel:function_id': FIRST_FUNCTION})
    first = cloud.glance.add(gbs(FIRST_FUNCTION), visibility='public', function_uuid=FIRST_FUNCTION)
    rp, uuid, may_tell = cloud.rp(), region(cloud)['uuid'], threading.Event()
    inventory = cloud.agent().inventory
    tell = inventory._send_report

    def tell_when_allowed(asker, report):
        if host.loaded:
            may_tell.wait()
        tell(asker, report)

    monkeypatch.setattr(inventory, '_send_report', tell_when_allowed)
    # given an operator who loads another image
    answer = cloud.call(
        'PATCH',
        f'/deployables/{uuid}/program',
        json=[{'path': '/program', 'op': 'replace', 'value': [{'image_uuid': image}]}],
    )
    assert answer.status_code == 200, answer.text
    # when somebody asks for what the region did before
    [arq] = cloud.request('first')
    answer = in_thread(cloud.bind, arq, rp=rp)
    eventually(
        lambda: (
            cloud.get(f'/accelerator_requests/{arq["uuid"]}')['state'] in ('BindStarted', 'Bound')
        )
    )
    may_tell.set()
    # then it is loaded
    assert answer().status_code == 202
    assert (len(host.loaded), region(cloud)['bitstream_id']) == (2, first)


def test_a_report_that_was_held_up_does_not_bring_back_what_was_replaced(
    cloud, host, image, monkeypatch
):
    """A slower driver keeps a round from its report until the image is loaded."""
    cloud.profile('first', {'resources:FPGA': '1', 'accel:function_id': FIRST_FUNCTION})
    first = cloud.glance.add(gbs(FIRST_FUNCTION), visibility='public', function_uuid=FIRST_FUNCTION)
    rp, uuid = cloud.rp(), region(cloud)['uuid']
    is_held, may_tell, is_told, may_look = (threading.Event() for _ in range(4))
    inventory = cloud.agent().inventory
    tell = inventory._send_report

    def tell_when_allowed(asker, report):
        if host.is_loading.is_set():
            (may_look if is_told.is_set() else may_tell).wait(PATIENCE)
        tell(asker, report)
        if may_tell.is_set():
            is_told.set()

    def discover(removed, look=inventory._discover):
        found = look(removed)
        if host.is_loading.is_set():
            is_held.set()
        return found

    monkeypatch.setattr(inventory, '_send_report', tell_when_allowed)
    monkeypatch.setattr(inventory, '_discover', discover)
    # given an operator who loads another image, and a round that looks meanwhile
    host.goes_on.clear()
    answer = in_thread(
        cloud.call,
        'PATCH',
        f'/deployables/{uuid}/program',
        json=[{'path': '/program', 'op': 'replace', 'value': [{'image_uuid': image}]}],
    )
    assert host.is_loading.wait(PATIENCE)
    inventory.wake(must_report=True)
    assert is_held.wait(PATIENCE)
    host.goes_on.set()
    assert answer().status_code == 200
    # when its report arrives after the image was loaded
    may_tell.set()
    assert is_told.wait(PATIENCE)
    [arq] = cloud.request('first')
    answer = in_thread(cloud.bind, arq, rp=rp)
    eventually(
        lambda: (
            cloud.get(f'/accelerator_requests/{arq["uuid"]}')['state'] in ('BindStarted', 'Bound')
        )
    )
    may_look.set()
    # then what the region did before is loaded
    assert answer().status_code == 202
    assert (len(host.loaded), region(cloud)['bitstream_id']) == (2, first)


class TestWithoutAnImageToBlankWith:
    @pytest.fixture
    def cloud(self, tmp_path):
        made = Cloud(tmp_path)
        made.start()
        yield made
        made.stop()

    @pytest.fixture
    def card(self, cloud):
        [device] = cloud.get('/devices?type=FPGA')['devices']
        return device['uuid']

    def test_what_a_tenant_loaded_is_not_given_to_others(self, cloud, host, image, card):
        arq, rp = bound(cloud, 'by-image'), cloud.rp()
        delete(cloud, arq)
        reason = eventually(lambda: region(cloud)['quarantine_reason'])
        assert f'[fpga] blank_images for {REGION_TYPE}' in reason
        eventually(lambda: published(cloud)['inventories']['FPGA']['reserved'] == 1)
        [second] = cloud.request('by-image')
        assert cloud.bind(second, rp=rp).status_code == 409

    def test_where_that_is_not_required_the_record_tells(self, cloud, host, image, card):
        cloud.profile(
            'not-required',
            BLANKED | {'accel:bitstream_id': image, 'accel:cleaning_required': 'false'},
        )
        delete(cloud, bound(cloud, 'not-required'))
        [record] = eventually(
            lambda: cloud.get(f'/devices/{card}/handbacks?result=done')['handbacks']
        )
        failures = {step['name']: step['reason'] for step in record['steps'] if step['reason']}
        assert failures.keys() == {'blank'}
        assert '[fpga] blank_images' in failures['blank']
        eventually(lambda: published(cloud)['inventories']['FPGA']['reserved'] == 0)


class SharedRegionHost(SimHost):
    """It counts what its tool loads."""

    def __init__(self, name, directory):
        super().__init__(name, directory, [shared_card(ADDRESS)], ['intel_fpga_driver'])
        self.loaded = []
        self._load, self.tools['fpgaconf'] = self.tools['fpgaconf'], self._count

    def _count(self, *arguments):
        self.loaded.append(arguments[-1])
        return self._load(*arguments)


class TestSharedRegion:
    @pytest.fixture
    def host(self, cloud):
        cloud.profile('blanked', BLANKED)
        return cloud.host(make=SharedRegionHost)

    def bound(self, cloud, function):
        rp = cloud.providers()[f'{REGION}_{function}']['uuid']
        [arq] = cloud.request('blanked')
        answer = cloud.bind(arq, rp=rp)
        assert answer.status_code == 202, answer.text
        return arq

    def test_what_another_request_has_is_not_blanked(self, cloud, host):
        first, second = self.bound(cloud, FIRST_FUNCTION), self.bound(cloud, FUNCTION)
        delete(cloud, first)
        self.bound(cloud, FIRST_FUNCTION)
        assert host.loaded == []
        assert cloud.get(f'/accelerator_requests/{second["uuid"]}')['state'] == 'Bound'
        assert FUNCTION_TRAIT in cloud.providers()[f'{REGION}_{FUNCTION}']['traits']

    def test_the_last_request_leaves_the_region_blank_and_free(self, cloud, host):
        first, second = self.bound(cloud, FIRST_FUNCTION), self.bound(cloud, FUNCTION)
        delete(cloud, first)
        delete(cloud, second)
        eventually(lambda: host.loaded)
        eventually(lambda: published(cloud)['inventories'].get('FPGA', {}).get('total') == 2)
        eventually(lambda: published(cloud)['inventories']['FPGA']['reserved'] == 0)
        assert all(path.endswith('blank.gbs') for path in host.loaded)
        for _ in range(2):
            [arq] = cloud.request('blanked')
            assert cloud.bind(arq, rp=published(cloud)['uuid']).status_code == 202

    def test_a_function_that_a_server_has_is_not_given_out_again_with_the_next_image(
        self, cloud, host
    ):
        # given a blank region, which offers both of its functions itself
        delete(cloud, self.bound(cloud, FUNCTION))
        eventually(lambda: published(cloud)['inventories'].get('FPGA', {}).get('total') == 2)
        eventually(lambda: published(cloud)['inventories']['FPGA']['reserved'] == 0)
        # when an image is loaded for one server, which offers them below its accelerators
        image = cloud.glance.add(gbs(FUNCTION, FUNCTION), visibility='public')
        cloud.profile('by-image', BLANKED | {'accel:bitstream_id': image})
        [first] = cloud.request('by-image')
        assert cloud.bind(first, rp=published(cloud)['uuid']).status_code == 202
        child = f'{REGION}_{FUNCTION}'
        eventually(lambda: child in cloud.providers())
        # then another server gets the other function, and a third one gets nothing
        offered = cloud.providers()[child]['inventories']['FPGA']
        assert (offered['total'], offered['reserved']) == (2, 1)
        second = self.bound(cloud, FUNCTION)
        functions = {
            tuple(cloud.get(f'/accelerator_requests/{arq["uuid"]}')['attach_handle_info'].items())
            for arq in (first, second)
        }
        assert len(functions) == 2
        [third] = cloud.request('blanked')
        assert cloud.bind(third, rp=cloud.providers()[child]['uuid']).status_code == 409

    def test_placement_offers_no_function_of_a_region_that_cannot_be_blanked(self, cloud, host):
        def refuse(*arguments):
            raise OSError(5, 'The card does not answer')

        first = self.bound(cloud, FIRST_FUNCTION)
        host.tools['fpgaconf'] = refuse
        delete(cloud, first)
        for function in FIRST_FUNCTION, FUNCTION:
            eventually(
                lambda name=f'{REGION}_{function}': (
                    cloud.providers()[name]['inventories']['FPGA']['reserved'] == 1
                )
            )

    def test_nobody_gets_a_function_while_its_region_is_blanked(self, cloud, host):
        first = self.bound(cloud, FIRST_FUNCTION)
        rp = cloud.providers()[f'{REGION}_{FUNCTION}']['uuid']
        may_load, load = threading.Event(), host.tools['fpgaconf']
        host.tools['fpgaconf'] = lambda *arguments: may_load.wait() and load(*arguments)
        delete(cloud, first)
        cloud.profile('function', BLANKED | {f'trait:{FUNCTION_TRAIT}': 'required'})
        [second] = cloud.request('function')
        answer = in_thread(cloud.bind, second, rp=rp)
        may_load.set()
        # the function that the bind asks for is gone with the image that had it
        assert answer().status_code in (404, 409)
        eventually(lambda: published(cloud)['inventories'].get('FPGA', {}).get('total') == 2)
