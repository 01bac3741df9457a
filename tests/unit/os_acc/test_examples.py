# SPDX-License-Identifier: Apache-2.0
"""Every public function has an example, and the examples run."""

import doctest
import inspect

import pytest

import os_acc
from os_acc import arguments, client, conf, errors, hosts, libvirt, polling, weigher

FLAGS = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
ALONE = [arguments, conf, errors, hosts, libvirt, polling, weigher]


@pytest.mark.parametrize('module', ALONE, ids=lambda module: module.__name__)
def test_examples_run(module):
    assert doctest.testmod(module, optionflags=FLAGS).failed == 0


def test_examples_of_a_host_run_in_the_order_of_an_instances_life(ready):
    given = {'conf': ready.conf, 'host': ready.name, 'transport': ready.transport}
    tests = {
        test.name: test
        for test in doctest.DocTestFinder().find(os_acc, extraglobs=given)
        if test.examples
    }
    assert set(tests) == {'os_acc.initialize', 'os_acc.plug', 'os_acc.unplug'}
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    for name in ('os_acc.initialize', 'os_acc.plug', 'os_acc.unplug'):
        assert runner.run(tests[name]).failed == 0, name


MODULES = (os_acc, client, *ALONE)
FUNCTIONS = [
    function
    for module in MODULES
    for name, function in inspect.getmembers(module, inspect.isfunction)
    if function.__module__ == module.__name__
    and not name.startswith('_')
    # stands in the place of Nova's
    and function is not weigher.get_weight_multiplier
]
#: of classes that callers make or are given; the agent is what the module's functions talk to
METHODS = [
    method
    for module in ALONE
    for name, found in inspect.getmembers(module, inspect.isclass)
    if found.__module__ == module.__name__ and not getattr(found, '_is_protocol', False)
    for name, method in vars(found).items()
    if not name.startswith('_') and inspect.isroutine(method)
]


@pytest.mark.parametrize('function', [*FUNCTIONS, *METHODS], ids=lambda each: each.__qualname__)
def test_every_public_function_and_method_has_an_example(function):
    assert '>>>' in (function.__doc__ or '')
