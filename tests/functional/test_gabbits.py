# SPDX-License-Identifier: Apache-2.0
"""The REST contract by noun and microversion, told in YAML and checked against the real thing."""

import pathlib
import unittest
import uuid

import pytest
from gabbi import driver

from cyborg.api import microversions

GABBITS = pathlib.Path(__file__).parents[1] / 'gabbits'


def suite(name, application):
    """All tests of one file, in their order."""
    every = driver.build_tests(
        str(GABBITS),
        unittest.TestLoader(),
        test_loader_name='gabbits',
        intercept=lambda: application,
    )
    return next(
        each for each in every if next(iter(each)).__class__.__name__.startswith(f'{name}_')
    )


@pytest.mark.parametrize('name', sorted(path.stem for path in GABBITS.glob('*.yaml')))
def test_the_contract_holds(name, cloud, monkeypatch):
    cloud.host('compute1')
    monkeypatch.setenv('COMPUTE_HOST', 'compute1')
    monkeypatch.setenv('DEVICE_RP_UUID', cloud.rp())
    monkeypatch.setenv('INSTANCE_UUID', str(uuid.uuid4()))
    monkeypatch.setenv('HIGHEST_VERSION', str(microversions.HIGHEST))
    result = unittest.TestResult()
    suite(name, cloud.standalone.api).run(result)
    problems = [f'{test.id()}\n{trace}' for test, trace in [*result.errors, *result.failures]]
    assert result.testsRun and not problems, '\n'.join(problems)
