# SPDX-License-Identifier: Apache-2.0
"""An image of Glance's becomes what an FPGA does, or it is said why not."""

import datetime
import pathlib
import threading
import uuid

import pytest

from cyborg.accelerator import pci, sysfs
from cyborg.conductor.audit import Audit
from tests.fixtures.cloud import PATIENCE, Cloud, eventually
from tests.fixtures.fpga import ADDRESS, FIRST_FUNCTION, FUNCTION, REGION_TYPE, FpgaHost, gbs

REGION, CARD = f'compute1_{ADDRESS}_region0', f'compute1_{ADDRESS}'
TOGETHER = 6


@pytest.fixture(params=[PATIENCE])
def cloud(request, tmp_path):
    made = Cloud(tmp_path, more=f'[api]\nbind_wait = {request.param}\n')
    made.start()
    yield made
    made.stop()


@pytest.fixture
def host(cloud):
    host = cloud.host(make=FpgaHost)
    cloud.profile('fpga', {'resources:FPGA': '1'})
    yield host
    host.goes_on.set()
    cloud.glance.goes_on.set()


def deployable(cloud, name=REGION):
    [found] = cloud.get(f'/deployables?name={name}')['deployables']
    return found


def ask(cloud, image, name=REGION, **options):
    path = f'/deployables/{deployable(cloud, name)["uuid"]}/program'
    return cloud.call(
        'PATCH',
        path,
        json=[{'path': '/program', 'op': 'replace', 'value': [{'image_uuid': image}]}],
        **options,
    )


def trait(function):
    return f'CUSTOM_FPGA_INTEL_FUNCTION_{function.upper().replace("-", "_")}'


def reserved(cloud):
    return cloud.providers()[REGION]['inventories']['FPGA']['reserved']


def wait_for_loading(cloud, host):
    assert host.is_loading.wait(PATIENCE), deployable(cloud)


def in_thread(function, *arguments):
    answers = []
    thread = threading.Thread(target=lambda: answers.append(function(*arguments)))
    thread.start()

    def join():
        thread.join()
        return answers[0]

    return join


def test_an_image_becomes_what_a_region_does(cloud, host):
    image = cloud.glance.add(
        gbs(), vendor='Intel', board='PAC Arria10', region_uuid=REGION_TYPE, function_uuid=FUNCTION
    )
    answer = ask(cloud, image)
    assert answer.status_code == 200
    assert (answer.json()['name'], answer.json()['bitstream_id']) == (REGION, image)
    # its new function is published, and it can be had again
    eventually(lambda: trait(FUNCTION) in cloud.providers()[REGION]['traits'])
    eventually(lambda: reserved(cloud) == 0)
    assert trait(FIRST_FUNCTION) not in cloud.providers()[REGION]['traits']
    shown = deployable(cloud)
    assert FUNCTION in shown['attributes_list']
    # and what was loaded is still known after reports
    assert (shown['bitstream_id'], shown['program_image'], shown['program_error']) == (
        image,
        None,
        None,
    )
    assert cloud.bind(cloud.request('fpga')).status_code == 202


def test_an_image_named_by_its_function_is_being_loaded_from_the_start(cloud, host):
    """Until its host has found the image, only the progress says so."""
    cloud.profile('function', {'resources:FPGA': '1', 'accel:function_id': FUNCTION})
    image = cloud.glance.add(gbs(), visibility='public', function_uuid=FUNCTION)
    rp, inventory = cloud.rp(), cloud.agent().inventory
    inventory.stop()
    answer = in_thread(cloud.bind, cloud.request('function'), 'compute1', None, rp)
    shown = eventually(lambda: deployable(cloud)['program_progress'])
    assert shown == f'Waiting for compute1 to find the image with the function_id {FUNCTION}.'
    assert deployable(cloud)['program_image'] is None
    inventory.sync()
    assert answer().status_code == 202
    found = deployable(cloud)
    assert (found['bitstream_id'], found['program_progress']) == (image, None)


def look_again(cloud):
    """One look at the host, after any that is under way."""
    inventory = cloud.agent().inventory
    inventory.stop()
    inventory.wake(must_report=True)
    inventory.sync()


@pytest.mark.parametrize('function', [FIRST_FUNCTION, '0' * 32], ids=['another', 'none'])
def test_an_image_that_others_replaced_is_not_shown_any_more(cloud, host, function):
    # given a region with an image, which showed its function since
    assert ask(cloud, cloud.glance.add(gbs())).status_code == 200
    eventually(lambda: FUNCTION in deployable(cloud)['attributes_list'])
    look_again(cloud)
    # when somebody else programs it, or the host is switched off and on
    host.program(ADDRESS, 0, function)
    look_again(cloud)
    # then nobody knows which image is in it
    assert deployable(cloud)['bitstream_id'] is None


def test_an_image_is_known_while_its_region_shows_nothing(cloud, host):
    image = cloud.glance.add(gbs())
    assert ask(cloud, image).status_code == 200
    eventually(lambda: FUNCTION in deployable(cloud)['attributes_list'])
    look_again(cloud)
    # when a guest has it
    card = pci.Function.at(host.sysfs, ADDRESS)
    card.write('driver_override', 'vfio-pci')
    (card / 'driver').write('unbind', ADDRESS)
    host.sysfs.write('bus/pci/drivers_probe', ADDRESS)
    look_again(cloud)
    shown = deployable(cloud)
    assert FUNCTION not in shown['attributes_list']
    assert shown['bitstream_id'] == image


def test_a_look_from_before_the_end_of_programming_says_nothing_of_the_image(cloud, host):
    # given a look that begins while an image is being loaded
    image = cloud.glance.add(gbs())
    host.goes_on.clear()
    answer = in_thread(ask, cloud, image)
    wait_for_loading(cloud, host)
    inventory = cloud.agent().inventory
    inventory.stop()
    tell = inventory._send_report

    def tell_late(asker, report):
        # and is told when that has ended
        host.goes_on.set()
        assert answer().status_code == 200
        tell(asker, report)

    inventory._send_report = tell_late
    inventory.wake(must_report=True)
    inventory.sync()
    # then the region shows what it does now, and the image is known
    inventory._send_report = tell
    look_again(cloud)
    shown = deployable(cloud)
    assert FUNCTION in shown['attributes_list']
    assert shown['bitstream_id'] == image


def test_nothing_is_left_on_the_host_and_nobody_else_could_read_it(cloud, host):
    modes = []
    load = host._load
    host._load = lambda *arguments: (
        modes.append(pathlib.Path(arguments[-1]).stat().st_mode & 0o777),
        load(*arguments),
    )[1]
    assert ask(cloud, cloud.glance.add(gbs())).status_code == 200
    assert modes == [0o600]
    assert not pathlib.Path(host.loaded[0]).exists()


def test_glance_hears_for_which_request_it_works(cloud, host):
    image = cloud.glance.add(gbs())
    request = f'req-{uuid.uuid4()}'
    assert ask(cloud, image, headers={'X-OpenStack-Request-ID': request}).status_code == 200
    assert cloud.glance.requests == [
        (f'/v2/images/{image}', request),
        (f'/v2/images/{image}/file', request),
    ]


def test_the_same_again_is_no_mistake(cloud, host):
    image = cloud.glance.add(gbs())
    assert [ask(cloud, image).status_code for _ in range(2)] == [200, 200]
    assert deployable(cloud)['bitstream_id'] == image


def test_the_same_at_the_same_time_is_no_mistake_either(cloud, host):
    image = cloud.glance.add(gbs())
    host.goes_on.clear()
    first = in_thread(ask, cloud, image)
    wait_for_loading(cloud, host)
    second = in_thread(ask, cloud, image)
    host.goes_on.set()
    assert [first().status_code, second().status_code] == [200, 200]


@pytest.mark.parametrize('cloud', [0], indirect=True)
def test_what_is_under_way_is_not_begun_again(cloud, host):
    image = cloud.glance.add(gbs())
    host.goes_on.clear()
    assert ask(cloud, image).status_code == 202
    wait_for_loading(cloud, host)
    assert ask(cloud, image).status_code == 202
    cloud.agent().inventory.wake(must_report=True)
    host.goes_on.set()
    eventually(lambda: deployable(cloud)['bitstream_id'] == image)
    assert len(host.loaded) == 1


def test_another_image_waits_for_its_turn(cloud, host):
    host.goes_on.clear()
    first = in_thread(ask, cloud, cloud.glance.add(gbs()))
    wait_for_loading(cloud, host)
    answer = ask(cloud, cloud.glance.add(gbs(FIRST_FUNCTION)))
    assert answer.status_code == 409
    assert 'is being loaded into it' in answer.text
    host.goes_on.set()
    assert first().status_code == 200


# -- images that are refused -----------------------------------------------------------------


BAD = {
    'its data is not what it should be': {'os_hash_value': '0' * 128},
    'it has no hash': {'os_hash_value': None, 'os_hash_algo': None},
    'its hash is weak': {'os_hash_algo': 'md5'},
    'its hash is unknown': {'os_hash_algo': 'rot13'},
    'it is shorter than it says': {'size': 5000},
    'it is longer than it says': {'size': 5},
    'nobody knows how long it is': {'size': None},
    'it is too long': {'size': 2**40},
    'it is not there yet': {'status': 'queued'},
    'it is deactivated': {'status': 'deactivated'},
    'it is for a card of others': {'vendor': '10ee'},
    'it is for another board': {'board': 'PAC D5005'},
    'it is for another region': {'region_uuid': FUNCTION},
}
SENTENCES = ('hash', 'bytes', 'not active', 'vendor', 'board', 'region_uuid')


@pytest.mark.parametrize('facts', BAD.values(), ids=BAD)
def test_what_cannot_be_trusted_never_reaches_the_card(cloud, host, facts):
    good = cloud.glance.add(gbs())
    assert ask(cloud, good).status_code == 200
    loaded = len(host.loaded)
    image = cloud.glance.add(gbs(FIRST_FUNCTION), **facts)
    answer = ask(cloud, image)
    assert answer.status_code == 409
    assert image in answer.text
    assert any(word in answer.text for word in SENTENCES)
    assert len(host.loaded) == loaded
    shown = deployable(cloud)
    assert (shown['bitstream_id'], shown['program_image']) == (good, None)
    assert image in shown['program_error']
    # and it can be tried again, with another one
    assert ask(cloud, good).status_code == 200
    assert deployable(cloud)['program_error'] is None


@pytest.mark.parametrize(
    'facts',
    [
        {'vendor': '0x8086', 'board': '8086:09c4', 'region_uuid': REGION_TYPE.replace('-', '')},
        {'vendor': 'intel', 'board': 'Intel PAC Arria10', 'region_uuid': None},
    ],
)
def test_names_may_be_written_in_several_ways(cloud, host, facts):
    assert ask(cloud, cloud.glance.add(gbs(), **facts)).status_code == 200


def test_an_image_that_is_gone_is_said_to_be(cloud, host):
    answer = ask(cloud, str(uuid.uuid4()))
    assert answer.status_code == 409
    assert 'Glance does not have it' in answer.text


def test_a_glance_that_is_gone_is_said_to_be(cloud, host):
    image = cloud.glance.add(gbs())
    cloud.glance.stop()
    answer = ask(cloud, image)
    assert answer.status_code == 409
    assert 'Glance cannot be reached.' in answer.text
    assert cloud.glance.url not in answer.text


# -- drivers that fail -----------------------------------------------------------------------


def test_a_driver_that_fails_is_quoted(cloud, host):
    assert ask(cloud, cloud.glance.add(gbs())).status_code == 200
    host.is_broken = True
    answer = ask(cloud, cloud.glance.add(gbs(FIRST_FUNCTION)))
    assert answer.status_code == 409
    assert 'The card does not answer' in answer.text
    shown = deployable(cloud)
    assert shown['bitstream_id'] is None  # nobody knows what is in it now
    assert 'The card does not answer' in shown['program_error']
    eventually(lambda: reserved(cloud) == 0)


def test_an_image_that_the_driver_does_not_take_is_refused(cloud, host):
    answer = ask(cloud, cloud.glance.add(gbs(magic=b'#!/bin/sh -eux  ')))
    assert answer.status_code == 409
    assert 'the image is not recognized' in answer.text
    assert host.loaded == []


@pytest.mark.parametrize(
    'options', [{'interface': FUNCTION}, {'magic': b'no image at all!'}], ids=['other', 'none']
)
def test_an_image_that_the_driver_refuses_changes_no_fact_about_the_card(
    cloud, host, options, caplog
):
    good = cloud.glance.add(gbs())
    assert ask(cloud, good).status_code == 200
    assert ask(cloud, cloud.glance.add(gbs(**options))).status_code == 409
    assert deployable(cloud)['bitstream_id'] == good
    [device] = cloud.get('/devices')['devices']
    assert device['fault'] is None
    assert not [line for line in caplog.messages if 'Device ' in line and ': failed' in line]
    # the card is not asked for what it holds already
    loaded = len(host.loaded)
    assert ask(cloud, good).status_code == 200
    assert len(host.loaded) == loaded


class TestHanging:
    @pytest.fixture
    def cloud(self, tmp_path):
        made = Cloud(tmp_path, more='[agent]\nresync_interval = 1\n')
        made.start()
        yield made
        made.stop()

    def test_a_driver_that_hangs_fails_and_its_card_is_kept_back(self, cloud, host, monkeypatch):
        [guard] = cloud.agent().inventory._guards
        host.goes_on.clear()
        with monkeypatch.context() as patch:
            patch.setattr(guard, '_program_timeout', 1)
            patch.setattr(sysfs, 'GRACE', 0.1)  # what is simulated cannot be killed
            answer = ask(cloud, cloud.glance.add(gbs()))
        assert answer.status_code == 409
        assert 'did not end within 1 seconds' in answer.text
        [device] = cloud.get('/devices')['devices']
        eventually(lambda: 'hangs' in (cloud.get(f'/devices/{device["uuid"]}')['fault'] or ''))
        eventually(lambda: reserved(cloud) == 1)
        # nothing else is loaded beside it
        answer = ask(cloud, cloud.glance.add(gbs()))
        assert 'still hangs' in answer.text
        assert len(host.loaded) == 1
        # and when it ends, the card is well again
        host.goes_on.set()
        eventually(lambda: cloud.get(f'/devices/{device["uuid"]}')['fault'] is None)
        eventually(lambda: reserved(cloud) == 0)
        assert ask(cloud, cloud.glance.add(gbs())).status_code == 200


# -- what else can be in the way -------------------------------------------------------------


@pytest.mark.parametrize('cloud', [0], indirect=True)
def test_the_answer_does_not_come_later_than_the_operator_allows(cloud, host):
    image = cloud.glance.add(gbs())
    host.goes_on.clear()
    answer = ask(cloud, image)
    assert answer.status_code == 202
    assert (answer.json()['program_image'], answer.json()['bitstream_id']) == (image, None)
    eventually(lambda: reserved(cloud) == 1)
    host.goes_on.set()
    eventually(lambda: deployable(cloud)['program_image'] is None)
    assert deployable(cloud)['bitstream_id'] == image


@pytest.mark.parametrize('cloud', [0], indirect=True)
def test_what_is_being_programmed_cannot_be_bound(cloud, host):
    [arq] = cloud.request('fpga')
    host.goes_on.clear()
    assert ask(cloud, cloud.glance.add(gbs())).status_code == 202
    wait_for_loading(cloud, host)
    answer = cloud.bind(arq)
    assert answer.status_code == 409
    assert 'try again in a moment' in answer.text
    host.goes_on.set()
    eventually(lambda: deployable(cloud)['program_image'] is None)
    assert cloud.bind(arq).status_code == 202


def test_a_bind_waits_until_what_it_needs_is_programmed(cloud, host):
    [arq] = cloud.request('fpga')
    host.goes_on.clear()
    programming = in_thread(ask, cloud, cloud.glance.add(gbs()))
    wait_for_loading(cloud, host)
    binding = in_thread(cloud.bind, arq)
    host.goes_on.set()
    assert programming().status_code == 200
    assert binding().status_code == 202


def test_what_is_bound_cannot_be_programmed(cloud, host):
    [arq] = cloud.request('fpga')
    assert cloud.bind(arq).status_code == 202
    answer = ask(cloud, cloud.glance.add(gbs()))
    assert answer.status_code == 409
    assert f'accelerator request {arq["uuid"]} has a part of it' in answer.text
    assert cloud.unbind(arq).status_code == 202
    assert ask(cloud, cloud.glance.add(gbs())).status_code == 200


@pytest.mark.parametrize('cloud', [0], indirect=True)
def test_binding_and_programming_at_once_have_one_winner(cloud, host):
    arqs = [cloud.request('fpga')[0] for _ in range(TOGETHER)]
    host.goes_on.clear()
    for arq in arqs:
        image = cloud.glance.add(gbs())  # one that is loaded already is not loaded again
        host.is_loading.clear()
        start = threading.Barrier(2)

        def bind(arq=arq, start=start):
            start.wait()
            return cloud.bind(arq).status_code

        def program(image=image, start=start):
            start.wait()
            return ask(cloud, image).status_code

        binding, programming = in_thread(bind), in_thread(program)
        bound = binding()
        if bound == 202:
            assert programming() == 409
            assert cloud.unbind(arq).status_code == 202
        else:
            wait_for_loading(cloud, host)
            host.goes_on.set()
            assert (bound, programming()) == (409, 202)
            eventually(lambda: deployable(cloud)['program_image'] is None)
            host.goes_on.clear()


def test_a_part_without_its_driver_s_help_is_not_programmed(cloud, host):
    answer = ask(cloud, cloud.glance.add(gbs()), name=CARD)
    assert answer.status_code == 409
    assert 'intel_fpga_driver cannot load images into it' in answer.text
    assert deployable(cloud, CARD)['is_programmable'] is False


def test_a_disabled_device_is_left_alone(cloud, host):
    [device] = cloud.get('/devices')['devices']
    assert cloud.call('POST', f'/devices/{device["uuid"]}/disable').status_code == 204
    answer = ask(cloud, cloud.glance.add(gbs()))
    assert answer.status_code == 409
    assert 'disabled' in answer.text
    assert cloud.call('POST', f'/devices/{device["uuid"]}/enable').status_code == 204
    assert ask(cloud, cloud.glance.add(gbs())).status_code == 200


def test_a_device_that_is_gone_is_not_programmed(cloud, host):
    assert cloud.bind(cloud.request('fpga')).status_code == 202
    host.pull_out(ADDRESS)
    eventually(lambda: cloud.get('/devices')['devices'][0]['is_missing'])
    answer = ask(cloud, cloud.glance.add(gbs()))
    assert answer.status_code == 409
    assert 'gone from the host' in answer.text


def test_a_card_that_goes_meanwhile_fails_and_is_forgotten(cloud, host):
    host.goes_on.clear()
    programming = in_thread(ask, cloud, cloud.glance.add(gbs()))
    wait_for_loading(cloud, host)
    host.pull_out(ADDRESS)
    eventually(lambda: cloud.get('/devices')['devices'][0]['is_missing'])
    host.is_broken = True
    host.goes_on.set()
    assert programming().status_code == 409
    eventually(lambda: cloud.get('/devices')['devices'] == [])


@pytest.mark.parametrize('cloud', [0], indirect=True)
def test_a_card_that_comes_back_meanwhile_is_not_given_out(cloud, host):
    [arq] = cloud.request('fpga')
    host.goes_on.clear()
    assert ask(cloud, cloud.glance.add(gbs())).status_code == 202
    wait_for_loading(cloud, host)
    host.pull_out(ADDRESS)
    eventually(lambda: cloud.get('/devices')['devices'][0]['is_missing'])
    host.plug_in('8086:09c4', at=ADDRESS)
    eventually(lambda: not cloud.get('/devices')['devices'][0]['is_missing'])
    assert cloud.bind(arq).status_code == 409
    host.goes_on.set()
    eventually(lambda: deployable(cloud)['program_image'] is None)
    # the image was lost with the card; what the card has now, its host reports next
    eventually(lambda: cloud.bind(arq).status_code == 202)


# -- processes that die ----------------------------------------------------------------------


@pytest.mark.parametrize('cloud', [0], indirect=True)
def test_an_agent_that_comes_back_does_what_its_host_owes(cloud, host):
    image = cloud.glance.add(gbs())
    rp = cloud.rp()
    cloud.standalone.remove_host('compute1')
    assert ask(cloud, image).status_code == 202
    [arq] = cloud.request('fpga')
    assert cloud.bind(arq, rp=rp).status_code == 409
    # an operator is told
    [finding] = Audit(cloud.standalone.db, grace=datetime.timedelta(0)).look()
    assert f'waits for image {image}' in finding.what
    cloud.standalone.add_host(host)
    eventually(lambda: deployable(cloud)['bitstream_id'] == image)
    assert cloud.bind(arq, rp=rp).status_code == 202
