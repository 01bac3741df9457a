# SPDX-License-Identifier: Apache-2.0
"""cyborg-manage profiles migrate: names that changed with a release."""

import argparse
import pathlib
import subprocess
import sys
from types import SimpleNamespace

import pytest

from cyborg import errors, objects
from cyborg.cmd import manage_profiles
from cyborg.conductor.engine import arqs as engine_arqs
from cyborg.conductor.engine.limits import UNLIMITED
from cyborg.conductor.engine.unit_of_work import UnitOfWork
from cyborg.db.sqlalchemy import arqs, clock, device_profiles, engine, migration
from cyborg.db.sqlalchemy.history import Cause

pytestmark = pytest.mark.embedded
EVERYTHING = arqs.Scope(project_id=None, silent_since=clock.now())
BIN = pathlib.Path(sys.executable).parent
OLD = {'resources:CUSTOM_FPGA': '1', 'trait:CUSTOM_FAST': 'required', 'accel:function_id': '3AFB'}
OTHER = {'resources:VGPU': '2', 'trait:CUSTOM_SLOW': 'forbidden'}


@pytest.fixture
def db(tmp_path):
    made = engine.Database(f'sqlite:///{tmp_path}/cyborg.db')
    migration.upgrade(made)
    with made.writer() as session:
        device_profiles.create(
            session,
            [
                objects.DeviceProfile(name='old', groups=[OTHER, OLD]),
                objects.DeviceProfile(name='other', groups=[OTHER]),
            ],
        )
    yield made
    made.close()


@pytest.fixture
def migrate(db, tmp_path):
    """The command, without the process that an operator would start."""
    conf = SimpleNamespace(
        api=SimpleNamespace(extra_accel_keys=[]), database=SimpleNamespace(connection=db.engine.url)
    )
    parser = argparse.ArgumentParser()
    manage_profiles.add_commands(parser.add_subparsers())

    def run(*arguments):
        options = parser.parse_args(['profiles', 'migrate', *arguments])
        return options.function(conf, options)

    return run


def groups(db, name='old'):
    with db.reader() as session:
        return device_profiles.get(session, None, name).groups


def maps(*pairs):
    return [argument for pair in pairs for argument in ('--map', pair)]


def test_all_kinds_of_names_are_rewritten_at_once(db, migrate, capsys):
    with db.writer() as session:
        profile = device_profiles.named(session, 'old')
        with UnitOfWork(session, Cause('a test')) as unit:
            [*_, arq] = engine_arqs.create(unit, profile.groups, 'p', profile, UNLIMITED)
    wanted = maps(
        'resources:CUSTOM_FPGA=resources:FPGA',
        'CUSTOM_FAST=HW_NIC_ACCEL_SSL',
        'accel:function_id:3AFB=trait:custom-function-3afb',
    )
    assert migrate(*wanted, '--dry-run') == 0
    tried = capsys.readouterr().out.splitlines()
    assert groups(db) == [OTHER, OLD]
    assert migrate(*wanted) == 0
    [change, end] = capsys.readouterr().out.splitlines()
    assert groups(db) == [
        OTHER,
        {
            'resources:FPGA': '1',
            'trait:HW_NIC_ACCEL_SSL': 'required',
            'trait:CUSTOM_FUNCTION_3AFB': 'required',
        },
    ]
    assert groups(db, 'other') == [OTHER]
    # it says what changed, and the attempt said the same
    assert change.startswith('old (') and ', group 1: ' in change
    for old, new in (
        ('resources:CUSTOM_FPGA=1', 'resources:FPGA=1'),
        ('accel:function_id=3AFB', 'trait:CUSTOM_FUNCTION_3AFB=required'),
    ):
        assert change.index(old) < change.index(' -> ') < change.index(new)
    assert end == '1 device profiles changed.'
    assert tried == [change, '1 device profiles would change; nothing is changed yet.']
    # a request keeps what it was made for
    with db.reader() as session:
        assert arqs.find(session, EVERYTHING, {'uuid': arq.uuid}, {})[0].group == OLD
    assert migrate(*wanted) == 0
    assert 'No device profile has' in capsys.readouterr().out


@pytest.mark.parametrize(
    'pairs, sentence',
    [
        (['CUSTOM_FAST=TOASTER'], 'old would not be valid any more: group 1'),
        (
            ['resources:CUSTOM_FPGA=resources:VGPU', 'accel:function_id=accel:colour'],
            'accel:colour',
        ),
        (['trait:CUSTOM_FAST=resources:FPGA'], 'only accel:KEY:VALUE can become'),
        (['accel:function_id=trait:CUSTOM_X'], 'only accel:KEY:VALUE can become'),
        (['accel:function_id:3AFB=accel:function_name'], 'either both have a value'),
        (['CUSTOM_FAST=trait:CUSTOM_X'], 'is not OLD=NEW'),
        (['CUSTOM_FAST'], 'is not OLD=NEW'),
        (['CUSTOM_FAST='], 'is not OLD=NEW'),
        (['CUSTOM_A=CUSTOM_B', 'trait:CUSTOM_A=trait:CUSTOM_C'], 'has two new names'),
        (['colour:A=colour:B'], 'does not begin with'),
        # one profile can be changed, the other one cannot: none is
        (['resources:VGPU=resources:PGPU', 'CUSTOM_FAST=COLOUR'], 'old would not be valid'),
    ],
)
def test_what_cannot_be_done_changes_nothing(db, migrate, pairs, sentence):
    with pytest.raises(errors.ConfigError) as refused:
        migrate(*maps(*pairs))
    assert sentence in refused.value.faultstring
    assert (groups(db), groups(db, 'other')) == ([OTHER, OLD], [OTHER])


def test_amounts_are_not_added_up(db, migrate):
    with db.writer() as session:
        device_profiles.create(
            session,
            [
                objects.DeviceProfile(
                    name='both', groups=[{'resources:CUSTOM_FPGA': '1', 'resources:FPGA': '2'}]
                )
            ],
        )
    with pytest.raises(errors.ConfigError, match='both would not .* resources:FPGA would occur'):
        migrate(*maps('CUSTOM_FPGA=FPGA'))
    assert groups(db) == [OTHER, OLD]


def test_two_traits_may_become_one(db, migrate):
    with db.writer() as session:
        device_profiles.create(
            session,
            [
                objects.DeviceProfile(
                    name='both',
                    groups=[
                        {
                            'resources:FPGA': '1',
                            'trait:CUSTOM_A': 'required',
                            'trait:CUSTOM_B': 'required',
                        },
                    ],
                )
            ],
        )
    assert migrate(*maps('CUSTOM_A=CUSTOM_B')) == 0
    assert groups(db, 'both') == [{'resources:FPGA': '1', 'trait:CUSTOM_B': 'required'}]


def test_names_may_be_exchanged(db, migrate):
    assert (
        migrate(
            *maps('resources:CUSTOM_FPGA=resources:VGPU', 'resources:VGPU=resources:CUSTOM_FPGA')
        )
        == 0
    )
    other, old = groups(db)
    assert (other['resources:CUSTOM_FPGA'], old['resources:VGPU']) == ('2', '1')


def test_the_command_ends_with_a_sentence(db, tmp_path):
    path = tmp_path / 'cyborg.conf'
    path.write_text(
        f'[DEFAULT]\ntransport_url = kombu+memory:////\n'
        f'[database]\nconnection = sqlite:///{tmp_path}/cyborg.db\n'
    )

    def run(*arguments):
        return subprocess.run(
            [BIN / 'cyborg-manage', '--config-file', path, 'profiles', 'migrate', *arguments],
            text=True,
            capture_output=True,
        )

    refused = run(*maps('CUSTOM_FAST=TOASTER'))
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1].startswith('cyborg-manage: Nothing is changed')
    assert 'Traceback' not in refused.stderr
    done = run(*maps('CUSTOM_FAST=CUSTOM_FASTER'))
    assert (done.returncode, groups(db)[1]['trait:CUSTOM_FASTER']) == (0, 'required')
    db.close()
    (tmp_path / 'cyborg.db').unlink()
    assert 'run cyborg-dbsync upgrade' in run(*maps('A=B')).stderr
