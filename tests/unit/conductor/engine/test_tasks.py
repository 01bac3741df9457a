# SPDX-License-Identifier: Apache-2.0
"""Which image a group asks for, and whether a deployable holds it already."""

import pytest

from cyborg.conductor.engine import tasks
from cyborg.db.sqlalchemy import models

IMAGE = '11111111-1111-4111-8111-111111111111'
OTHER = '22222222-2222-4222-8222-222222222222'
FUNCTION = 'd8424dc4-a4a3-c413-f89e-433683f9040b'
BY_NAME = [{'bitstream_name': 'sha'}, {'function_name': 'SHA-256'}]
BY_ID = {'bitstream_id': IMAGE}


def region(functions=(FUNCTION,), bitstream_id=IMAGE, **facts):
    known = {
        'name': 'sha',
        'function_name': 'SHA-256',
        'visibility': 'public',
        'owner': 'theirs',
    } | facts
    return models.Deployable(
        bitstream_id=bitstream_id,
        bitstream_facts={name: value for name, value in known.items() if value is not None},
        attributes=[models.Attribute(key='function_uuid', value=value) for value in functions],
    )


def test_the_image_of_a_group_is_all_that_names_one():
    group = {
        'resources:FPGA': '1',
        'accel:cleaning': 'full',
        'accel:bitstream_id': 'a',
        'accel:bitstream_name': 'b',
        'accel:function_id': 'c',
        'accel:function_name': 'd',
    }
    assert tasks.image_of(group) == {
        'bitstream_id': 'a',
        'bitstream_name': 'b',
        'function_id': 'c',
        'function_name': 'd',
    }


def test_a_group_that_names_no_image_asks_for_none():
    assert tasks.image_of({'resources:FPGA': '1', 'bitstream_id': IMAGE}) == {}


@pytest.mark.parametrize('image', [BY_ID, {'function_id': FUNCTION}, *BY_NAME])
def test_a_public_image_that_is_there_is_loaded(image):
    assert tasks.is_loaded(region(), image, 'mine')


@pytest.mark.parametrize(
    'image',
    [
        {'bitstream_id': OTHER},
        {'function_id': OTHER},
        {'bitstream_name': 'aes'},
        {'function_name': 'AES'},
    ],
)
def test_another_image_than_the_one_that_is_there_is_not_loaded(image):
    assert not tasks.is_loaded(region(), image, 'mine')


@pytest.mark.parametrize('wrong', ['bitstream_id', 'function_id'])
def test_an_image_that_is_named_in_two_ways_must_match_both(wrong):
    image = BY_ID | {'function_id': FUNCTION}
    assert tasks.is_loaded(region(), image, 'mine')
    assert not tasks.is_loaded(region(), image | {wrong: OTHER}, 'mine')


def test_a_function_is_compared_without_regard_to_case_and_dashes():
    wanted = FUNCTION.replace('-', '').upper()
    assert tasks.is_loaded(region(), {'function_id': wanted}, 'mine')


@pytest.mark.parametrize('image', [BY_ID, *BY_NAME])
@pytest.mark.parametrize('visibility', ['private', 'shared', None])
def test_an_image_of_another_project_counts_as_not_loaded(image, visibility):
    assert not tasks.is_loaded(region(visibility=visibility), image, 'mine')


@pytest.mark.parametrize('image', [BY_ID, *BY_NAME])
@pytest.mark.parametrize('visibility', ['private', 'shared', 'community'])
def test_a_project_may_use_the_images_that_it_owns(image, visibility):
    assert tasks.is_loaded(region(visibility=visibility, owner='mine'), image, 'mine')


def test_a_community_image_is_for_everybody_who_names_its_id():
    assert tasks.is_loaded(region(visibility='community'), BY_ID, 'mine')


@pytest.mark.parametrize('image', [*BY_NAME, BY_ID | BY_NAME[0]])
def test_a_community_image_of_another_project_is_not_found_by_name(image):
    assert not tasks.is_loaded(region(visibility='community'), image, 'mine')


def test_no_project_owns_an_image_without_owner():
    assert not tasks.is_loaded(region(visibility='private', owner=None), BY_ID, None)


def test_a_function_that_is_loaded_is_for_everybody():
    image = {'function_id': FUNCTION}
    assert tasks.is_loaded(region(visibility='private'), image, 'mine')
    assert tasks.is_loaded(region(visibility='private'), image, None)


def test_a_function_whose_image_nobody_knows_is_loaded():
    part = models.Deployable(
        attributes=[models.Attribute(key='function_uuid', value=FUNCTION)],
    )
    assert tasks.is_loaded(part, {'function_id': FUNCTION}, 'mine')
    assert not tasks.is_loaded(part, BY_ID, 'mine')


def test_a_function_of_another_projects_image_needs_the_right_to_the_image_that_is_named():
    image = BY_ID | {'function_id': FUNCTION}
    assert not tasks.is_loaded(region(visibility='private'), image, 'mine')


@pytest.mark.parametrize('image', BY_NAME)
def test_the_name_of_an_image_that_is_gone_matches_nothing(image):
    assert not tasks.is_loaded(region(bitstream_id=None), image, 'mine')
