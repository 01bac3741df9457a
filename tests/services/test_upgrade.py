# SPDX-License-Identifier: Apache-2.0
"""A cloud of the previous release is upgraded service by service under load, and taken back.

On the way every service meets every other one in both releases, and in each mixture services are
killed. No request is lost, and none is answered later than it may be. ``make test-upgrade`` runs
this.
"""

import json
import signal
import subprocess
import threading
import time

import pytest
import sqlalchemy as sa

from cyborg.db.sqlalchemy import models
from cyborg.objects import manifests
from tests.fixtures import fpga, releases
from tests.fixtures.cloud import eventually
from tests.fixtures.processes import PATIENCE, Deployment
from tests.fixtures.releases import PRESENT
from tests.services.test_kill import (
    API,
    CLEANING,
    CONDUCTOR,
    FPGA,
    FUNCTIONS,
    LATEST_ANSWER,
    PROFILES,
    SETTLING,
    Killer,
    NovaClient,
    overdue,
    problems,
    say,
    tell,
)
from tests.services.test_os_acc import COMPUTE, server

CLIENTS = 6
#: servers that must be bound in each mixture of releases, without a fault
BOUND = 6
#: seconds within which answers must come while there is an API of the previous release and
#: something is away: it waits for a conductor that died with its call, up to rpc_response_timeout,
#: more than once
LATEST_ANSWER_OF_PREVIOUS = 20
CARDS = ['0000:3b:00.0', '0000:d8:00.0']
#: the host whose accelerators are plugged by os_acc
PLUGGED = 'compute4'


@pytest.fixture(scope='module')
def previous(tmp_path_factory):
    return releases.previous(tmp_path_factory.mktemp('previous') / 'release')


@pytest.fixture
def cloud(request, tmp_path, broker, database, previous):
    """Two APIs, two conductors and four hosts of a release, in a database that the previous
    release has made."""
    release = {'previous': previous, 'present': PRESENT}[request.param]
    with Deployment(
        tmp_path, broker.url, database.url, conductors=2, conductor=CONDUCTOR, api=API, apis=2
    ) as made:
        made.create_database(previous)
        if release is PRESENT:
            made.dbsync('upgrade', '--expand')
        made.start_services(release)
        made.host('compute1', release=release)
        made.host('compute2', CARDS, release=release).slowness = 0.2
        made.host(
            'compute3', [fpga.ADDRESS], CLEANING, FPGA, 'intel_fpga_driver', release=release
        ).slowness = 0.2
        made.host(PLUGGED, CARDS[:1], release=release)
        for name, (_, group) in PROFILES.items():
            made.profile(name, group)
        for name, function in FUNCTIONS.items():
            image = made.glance.add(fpga.gbs(function), visibility='public', function_uuid=function)
            made.profile(name, {'resources:FPGA': '1', 'accel:bitstream_id': image})
        yield made


class Load:
    """Clients that bind and release, as Nova does, while services are replaced and killed."""

    def __init__(self, cloud):
        self._cloud = cloud
        providers = {
            host: [each['uuid'] for each in cloud.providers(host).values() if each['inventories']]
            for host in cloud.agents
        }
        self._over = threading.Event()
        self.clients = [NovaClient(cloud, providers, n, self._over) for n in range(CLIENTS)]
        self._killer = Killer(cloud)
        #: since when an answer may take how many seconds
        self._limits = []
        self._limit_answers()

    def __enter__(self):
        for client in self.clients:
            client.start()
        return self

    def __exit__(self, *exception):
        self._over.set()
        for client in self.clients:
            client.join()

    @property
    def bound(self):
        return sum(client.bound for client in self.clients)

    def switch(self, process, release):
        """Replace a service as an operator does: stop it, install another release, start it."""
        say(f'{process.name}: {release.name}')
        started = STARTED[process.name.rstrip('0123456789')]
        with self._killer.outage():
            assert process.terminate() in (0, -signal.SIGTERM)
            process.use(release)
            self._limit_answers()
            before = process.log.read_text(errors='replace').count(started)
            process.start()
            eventually(lambda: process.said(started, before + 1), PATIENCE)

    def mixture(self, *moves, libraries):
        """Replace services, then kill one of each kind; after that all work must be done."""
        for process, release in moves:
            self.switch(process, release)
        for library in libraries:
            plug_and_unplug(self._cloud, library)
        for services in (self._cloud.conductors, self._cloud.apis, self._cloud.agents.values()):
            self._killer.kill(self._killer.choose(services))
        self._killer.await_recovery()
        before = self.bound
        eventually(lambda: self.bound >= before + BOUND, PATIENCE)

    def _limit_answers(self):
        """From now on answers may take as long as the oldest API needs."""
        are_present = all(api.release is PRESENT for api in self._cloud.apis)
        limit = LATEST_ANSWER if are_present else LATEST_ANSWER_OF_PREVIOUS
        self._limits.append((time.monotonic(), limit))

    def _is_late(self, answer):
        if not answer.is_within(self._killer.windows):
            return answer.took > LATEST_ANSWER
        return answer.took > [limit for since, limit in self._limits if since <= answer.begin][-1]

    def check(self):
        """Nothing is lost or left behind, and no answer was late."""
        say(f'{self.bound} servers were bound, {len(self._killer.outages)} services ended')
        end = time.monotonic() + SETTLING
        while (left := list(problems(self._cloud, self.clients))) and time.monotonic() < end:
            time.sleep(1)
        assert left == []
        assert [each for client in self.clients for each in client.mistakes] == []
        assert overdue(self._cloud, self._killer.outages) == []
        answers = [answer for client in self.clients for answer in client.answers]
        tell(answers, self._killer)
        failed = [answer for answer in answers if answer.status >= 500]
        assert [str(answer) for answer in answers if self._is_late(answer)] == []
        assert [
            str(answer) for answer in failed if not answer.is_within(self._killer.windows)
        ] == []
        assert [str(answer) for answer in failed if 'understand' in answer.text] == []


STARTED = {'api': 'Serving on', 'conductor': 'Listening for', 'compute': 'Reported'}


def plug_and_unplug(cloud, release):
    """What nova-compute does with the library of a release."""
    instance = server()
    calls = [
        ('initialize',),
        ('plug', instance, {'uuid': cloud.rp(PLUGGED)}, {'accel:device_profile': 'vgpu'}),
        ('unplug', instance),
    ]
    done = subprocess.run(
        [
            release.bin / 'python',
            *('-W', 'ignore', '-c', COMPUTE, cloud.transport, cloud._exchange, PLUGGED),
        ],
        input=''.join(json.dumps({'calls': [call], 'options': {}}) + '\n' for call in calls),
        capture_output=True,
        text=True,
        cwd=release.root,
        timeout=PATIENCE,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == 3 and all('result' in answer for [answer] in answers), (
        release.name,
        answers,
        done.stderr,
    )
    assert len(answers[1][0]['result']) == 1 and answers[2][0]['result'] == 1


@pytest.mark.timeout(1800)
@pytest.mark.parametrize('cloud', ['previous'], indirect=True)
def test_a_cloud_is_upgraded_under_load(cloud, previous):
    libraries = previous, PRESENT
    first, second = cloud.conductors
    hosts = cloud.agents
    with Load(cloud) as load:
        say(cloud.dbsync('upgrade', '--expand').strip())
        # a service of the previous release can be started again
        load.mixture((second, previous), libraries=libraries)
        # conductors, APIs, agents one by one, as the guide says
        load.mixture((first, PRESENT), libraries=libraries)
        load.mixture((second, PRESENT), libraries=libraries)
        load.mixture(*((api, PRESENT) for api in cloud.apis), libraries=libraries)
        load.mixture(*((hosts[name], PRESENT) for name in ('compute1', 'compute2')), libraries=())
        load.mixture(
            *((hosts[name], PRESENT) for name in ('compute3', PLUGGED)), libraries=libraries
        )
        eventually(lambda: versions(cloud) == {manifests.NEWEST}, PATIENCE)
    load.check()
    assert cloud.dbsync('online_data_migrations') == 'Nothing is left to migrate.\n'
    assert 'The schema is at' in cloud.dbsync('upgrade', '--contract')


@pytest.mark.timeout(1800)
@pytest.mark.parametrize('cloud', ['present'], indirect=True)
def test_a_cloud_is_taken_back_under_load(cloud, previous):
    libraries = previous, PRESENT
    first, second = cloud.conductors
    hosts = cloud.agents
    with Load(cloud) as load:
        # conductors first, so that those of the previous release meet newer APIs and agents
        load.mixture((first, previous), libraries=libraries)
        load.mixture((second, previous), libraries=libraries)
        load.mixture(
            *((hosts[name], previous) for name in ('compute1', PLUGGED)), libraries=libraries
        )
        load.mixture(*((hosts[name], previous) for name in ('compute2', 'compute3')), libraries=())
        load.mixture(*((api, previous) for api in cloud.apis), libraries=())
    load.check()


def versions(cloud):
    """Returns the RPC versions that agents have reported."""
    return {version for [version] in cloud.rows(sa.select(models.Agent.rpc_version))}
