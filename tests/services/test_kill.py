# SPDX-License-Identifier: Apache-2.0
"""Whatever is killed, and whenever: nothing is lost, stuck, leaked or given out twice.

Several clients bind and release as Nova does while services are killed and servers restarted
at random instants. After that everything must settle by itself. CYBORG_KILL_SECONDS is the length
of a run, CYBORG_KILL_CLIENTS the number of clients, and CYBORG_KILL_SEED changes what is killed;
``make test-kill`` is the long form.
"""

import contextlib
import dataclasses
import os
import random
import signal
import sys
import threading
import time
import uuid

import pytest
import requests
import sqlalchemy as sa

from cyborg.db.sqlalchemy import clock, models
from cyborg.objects import HandleType
from cyborg.objects.arq_states import State
from tests.fixtures import fpga, pages
from tests.fixtures.cloud import eventually
from tests.fixtures.processes import PATIENCE, Deployment
from tools import services

SECONDS = int(os.environ.get('CYBORG_KILL_SECONDS', '60'))
SEED = int(os.environ.get('CYBORG_KILL_SEED', '1'))
CLIENTS = int(os.environ.get('CYBORG_KILL_CLIENTS', '6'))
MOST_KEPT = 2  #: servers that each client leaves running
BIND_TIMEOUT, PROGRAM_TIMEOUT, SWEEP = 20, 20, 2  #: seconds
#: seconds within which every answer must come
LATEST_ANSWER = 10
#: seconds after a fault in which services may still answer 5xx: they connect again
RECOVERY = 10
#: the share of the time in which nothing is away, and nothing may fail
QUIET = 1 / 4
#: the API answers before LATEST_ANSWER, however many conductors it loses on the way
API = pages.block('admin/high-availability.rst', 'ini', 'bind_wait')
#: seconds for all to settle: an event that a dead conductor was sending is sent again after 60
SETTLING = 240
#: what is added to a deadline because machines are slow: what was killed may take half a minute
#: to come back
SLACK = 60

CONDUCTOR = f'bind_timeout = {BIND_TIMEOUT}\nprogram_timeout = {PROGRAM_TIMEOUT}\n'
FPGA = '8086:09c4'
#: it is reset after each request
CLEANING = '[cleaning]\ndriver_levels = intel_fpga_driver:reset\n[agent]\n'
PROFILES = {
    'fpga': ('compute1', {'resources:FPGA': '1', 'trait:CUSTOM_FAKE_DEVICE': 'required'}),
    'vgpu': ('compute2', {'resources:VGPU': '1'}),
    'two': ('compute2', {'resources:VGPU': '2'}),
}
#: profiles that have an image loaded first: what their image makes of a region
FUNCTIONS = {'gzip': fpga.FUNCTION, 'crypto': fpga.FIRST_FUNCTION}
SETTLED = {State.INITIAL, State.BOUND, State.BIND_FAILED, State.UNBOUND}


def say(text):
    sys.stdout.write(f'{time.strftime("%H:%M:%S")} {text}\n')


# -- those who ask ---------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Answer:
    """An answer of the API, and when it came."""

    method: str
    path: str
    begin: float
    end: float
    status: int
    text: str

    @property
    def took(self):
        return self.end - self.begin

    def is_within(self, windows):
        """Did any part of a window fall into the time of the request?"""
        return any(self.begin <= end and begin <= self.end for begin, end in windows)

    def __str__(self):
        return f'{self.method} {self.path}: {self.status} after {self.took:.1f} s: {self.text}'


class Server:
    """A server in the eyes of Nova, with what it was given."""

    def __init__(self, profile, host, rp):
        self.uuid, self.profile, self.host, self.rp = str(uuid.uuid4()), profile, host, rp
        self.arqs = []

    @property
    def uuids(self):
        return [arq['uuid'] for arq in self.arqs]


class NovaClient:
    """Creates and deletes servers, one after the other; keeps some."""

    def __init__(self, deployment, providers, number, over):
        self._deployment, self._providers, self._over = deployment, providers, over
        self._random = random.Random(SEED * 1000 + number)
        self._session = requests.Session()
        self.kept = []  #: servers that are bound to the end
        self.gone = []  #: requests that were deleted
        self.bound = 0
        self.mistakes = []  #: what should never be answered, or seen
        self.answers = []  #: when each was received, what it took, and its status
        self._thread = threading.Thread(target=self._run, name=f'client{number}')

    def start(self):
        self._thread.start()

    def join(self):
        self._thread.join()
        self._session.close()

    def _run(self):
        try:
            while not self._over.is_set():
                self._live()
        except Exception as error:
            self.mistakes.append(f'the client ended with {error!r}')
            raise

    def _live(self):
        profile = self._random.choice([*PROFILES, *FUNCTIONS])
        host = PROFILES[profile][0] if profile in PROFILES else 'compute3'
        server = Server(profile, host, self._random.choice(self._providers[host]))
        created = self._ask(
            'POST', '/accelerator_requests', {201}, json={'device_profile_name': profile}
        )
        server.arqs = created.json()['arqs']
        if not self._bind(server):
            return self._delete_some(server)
        self.bound += 1
        # the region stays free, so that images are loaded and regions cleaned to the end
        is_kept = len(self.kept) < MOST_KEPT and profile not in FUNCTIONS
        if is_kept and self._random.random() < 0.3:
            return self.kept.append(server)
        time.sleep(self._random.uniform(0, 0.5))
        release = self._random.choice([self._delete_all, self._delete_some, self._unbind])
        release(server)

    def _bind(self, server):
        """Bind, and wait as nova-compute does; False if that failed."""
        body = {
            arq: [
                {'op': 'add', 'path': '/hostname', 'value': server.host},
                {'op': 'add', 'path': '/device_rp_uuid', 'value': server.rp},
                {'op': 'add', 'path': '/instance_uuid', 'value': server.uuid},
            ]
            for arq in server.uuids
        }
        answer = self._ask('PATCH', '/accelerator_requests', {202, 409}, json=body)
        if answer.status_code == 409:
            return False
        while True:
            found = self._ask(
                'GET', '/accelerator_requests', {200}, params={'instance': server.uuid}
            ).json()['arqs']
            if not found:  # the bind failed, and its requests are shown as no server's
                return False
            server.arqs = found
            if len(server.arqs) != len(body):
                self.mistakes.append(f'server {server.uuid} lost requests: {server.arqs}')
            if {arq['state'] for arq in server.arqs} == {'Bound'}:
                return True
            time.sleep(0.2)

    def _delete_all(self, server):
        self._ask('DELETE', '/accelerator_requests', {204}, params={'instance': server.uuid})
        self.gone += server.uuids

    def _delete_some(self, server):
        self._ask(
            'DELETE', '/accelerator_requests', {204, 404}, params={'arqs': ','.join(server.uuids)}
        )
        self.gone += server.uuids

    def _unbind(self, server):
        body = {
            arq: [
                {'op': 'remove', 'path': f'/{name}'}
                for name in ('hostname', 'device_rp_uuid', 'instance_uuid')
            ]
            for arq in server.uuids
        }
        self._ask('PATCH', '/accelerator_requests', {202}, json=body)
        if self._random.random() < 0.5:
            self._delete_some(server)

    def _ask(self, method, path, expected, **options):
        """Ask until somebody answers: services are being killed."""
        while True:
            begin = time.monotonic()
            try:
                url = self._random.choice(self._deployment.urls)
                answer = self._session.request(method, f'{url}/v2{path}', timeout=60, **options)
            except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError):
                # the API was killed, perhaps in the middle of its answer
                time.sleep(self._random.uniform(0.1, 0.5))
                continue
            end = time.monotonic()
            self.answers.append(Answer(method, path, begin, end, answer.status_code, answer.text))
            if answer.status_code in expected:
                return answer
            if answer.status_code != 503:
                self.mistakes.append(
                    f'{method} {path} {options}: {answer.status_code} {answer.text}'
                )
            time.sleep(self._random.uniform(0.1, 0.5))


# -- the one who kills -----------------------------------------------------------------------


class Killer:
    """Ends services and servers, at random instants, and starts them again."""

    def __init__(self, deployment):
        self._deployment = deployment
        self._random = random.Random(SEED)
        self.begin = time.monotonic()  #: when it began to kill
        self.outages = []  #: begin and end of what keeps requests from ending
        self.windows = []  #: the same by the monotonic clock, with the time to recover
        self.broker_returns = []  #: when the broker was ready again, by that clock

    def run(self, seconds, broker, database):
        targets = [(self._end_service, process) for process in self._deployment.processes * 2]
        targets += [
            (self._end_server, broker),
            (self._end_server, database),
            (self._reboot, 'compute2'),
            (self._switch_off, 'compute3'),
            (self._break_nova, self._deployment.nova),
        ]
        self.begin = time.monotonic()
        while time.monotonic() < self.begin + seconds:
            for _ in range(self._random.randint(4, 8)):
                # some before the last one is up again, some when all have found together
                time.sleep(self._random.choice([0.1, 1, 1, 5, 5]) * self._random.random())
                act, target = self._random.choice(targets)
                with self.outage():
                    act(target)
                if target is broker:
                    self.broker_returns.append(time.monotonic())
            self._rest()
        for process in self._deployment.processes:
            assert process.is_alive, f'{process.name} ended by itself'

    def _rest(self):
        """Return after a time without faults that is as long as it must be for now."""
        self.await_recovery()
        while self.quiet() < QUIET * (time.monotonic() - self.begin) + 1:
            time.sleep(0.1)

    def quiet(self):
        """For how many seconds nothing was away or recovering, until now."""
        now, quiet, last = time.monotonic(), 0, self.begin
        for begin, end in sorted(self.windows):
            quiet += max(begin - last, 0)
            last = max(last, end)
        return quiet + max(now - last, 0)

    def kill(self, *services):
        """Kill one service after the other at random instants, and start each again."""
        for service in services:
            time.sleep(self._random.uniform(0, 2))
            say(f'kill {service.name}')
            with self.outage():
                service.kill()
                time.sleep(self._random.uniform(0, 1.5))
                service.start()

    def choose(self, services):
        return self._random.choice(list(services))

    def await_recovery(self):
        """Return when services may no longer answer 5xx."""
        time.sleep(max(0, max(end for _, end in self.windows) - time.monotonic()))

    @contextlib.contextmanager
    def outage(self):
        """Something is away meanwhile."""
        begin, moment = clock.now(), time.monotonic()
        yield
        self.outages.append((begin, clock.now()))
        self.windows.append((moment, time.monotonic() + RECOVERY))

    def _end_service(self, service):
        way = self._random.choice(['kill', 'kill', 'kill', 'worker', 'master', 'terminate'])
        say(f'{way} {service.name}')
        if way == 'worker':
            # its master starts another one
            for pid in service.workers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return
        if way == 'master':
            service.signal(signal.SIGKILL)
            service.wait()
            eventually(lambda: not is_group(service.pid), PATIENCE)
        elif way == 'terminate':
            # by itself in order, or at once if it was only about to start
            assert service.terminate() in (0, -signal.SIGTERM)
        else:
            service.kill()
        time.sleep(self._random.uniform(0, 1.5))
        service.start()

    def _end_server(self, server):
        way = self._random.choice(['kill', 'stop'])
        say(f'{way} {server.name}')
        getattr(server, way)()
        time.sleep(self._random.uniform(0, 1.5))
        server.start()

    def _reboot(self, name):
        say(f'reboot {name}')
        agent = self._deployment.agents[name]
        agent.kill()
        self._deployment.kernels[name].host.reboot()
        agent.start()

    def _switch_off(self, name):
        """Its card forgets what was loaded."""
        say(f'switch {name} off and on')
        agent, host = self._deployment.agents[name], self._deployment.kernels[name].host
        agent.kill()
        host.pull_out(fpga.ADDRESS)
        host.reboot()
        host.plug_in(FPGA, at=fpga.ADDRESS)
        agent.start()

    def _break_nova(self, nova):
        say('break Nova')
        nova.code = 503
        time.sleep(self._random.uniform(0, 1.5))
        nova.code = 200


def is_group(leader):
    """Is somebody of this process group left?"""
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    return True


# -- what must hold --------------------------------------------------------------------------


def problems(deployment, clients):
    """Whatever is not as it must be once all has settled."""
    arqs = {row.uuid: row for [row] in deployment.rows(sa.select(models.ExtArq))}
    handles = deployment.rows(
        sa.select(models.AttachHandle, models.Deployable.rp_uuid, models.Device.hostname)
        .join(models.AttachHandle.deployable)
        .join(models.Deployable.device)
    )
    yield from _requests(arqs, handles)
    yield from _hosts(deployment, arqs, handles)
    yield from _images(deployment, arqs)
    yield from _nova(deployment, arqs)
    yield from _placement(deployment, handles)
    yield from _clients(clients, arqs)


def _requests(arqs, handles):
    held = {}
    for handle, rp, host in handles:
        if handle.arq_id is not None:
            held.setdefault(handle.arq_id, []).append((rp, host))
    for arq in arqs.values():
        mine = held.pop(arq.id, [])
        if arq.state not in SETTLED:
            yield f'{arq.uuid} is {arq.state}'
        elif arq.state == State.BOUND and mine != [(arq.device_rp_uuid, arq.hostname)]:
            yield f'{arq.uuid} is bound to {arq.device_rp_uuid} and holds {mine}'
        elif arq.state != State.BOUND and mine:
            yield f'{arq.uuid} is {arq.state} and holds {mine}'
    for arq_id in held:
        yield f'a handle is held by request {arq_id}, which is not there'


def _hosts(deployment, arqs, handles):
    bound = {arq.id for arq in arqs.values() if arq.state == State.BOUND}
    for name, kernel in deployment.kernels.items():
        wanted = {
            handle.uuid
            for handle, _, host in handles
            if host == name and handle.arq_id in bound and handle.type == HandleType.MDEV
        }
        there = kernel.mdevs()
        if there - wanted:
            yield f'{name} has {there - wanted}, which nobody holds'
        if wanted - there:
            yield f'{name} lacks {wanted - there}, which are bound'
    for handle, _, host in handles:
        if handle.withheld or handle.is_missing:
            yield f'{handle.uuid} on {host} is not clean: {handle.withheld}'


def _functions(deployment):
    """What the regions of compute3 do. One that is being loaded has no port meanwhile."""
    ports = (deployment.kernels['compute3'].directory / 'devices').glob('**/afu_id')
    with contextlib.suppress(FileNotFoundError):
        return [port.read_text().strip() for port in ports]
    return []


def _images(deployment, arqs):
    loaded = _functions(deployment)
    for arq in arqs.values():
        wanted = arq.group.get('accel:bitstream_id')
        if wanted and arq.state == State.BOUND:
            function = deployment.glance.images[wanted]['function_uuid']
            if loaded != [function.replace('-', '')]:
                yield f'{arq.uuid} is bound, and its region does not do {function}'
    for task in deployment.rows(sa.select(models.Task.uuid).where(models.Task.state == 'open')):
        yield f'task {task.uuid} is not done'
    for path in deployment.directory.rglob('bitstream-*'):
        yield f'{path} is left'


def _nova(deployment, arqs):
    if left := deployment.rows(sa.select(models.NovaEvent.arq_uuid, models.NovaEvent.due_at)):
        yield f'in the outbox are {left}'
    told = {
        (event['server_uuid'], event['tag'])
        for event in deployment.nova.events()
        if event['status'] == 'completed'
    }
    for arq in arqs.values():
        if arq.state == State.BOUND and (arq.instance_uuid, arq.uuid) not in told:
            yield f'Nova was not told that {arq.uuid} is bound'


def _placement(deployment, handles):
    wanted = {}
    for _, rp, host in handles:
        wanted.setdefault(host, {}).setdefault(rp, 0)
        wanted[host][rp] += 1
    for name in deployment.agents:
        shown = {
            each['uuid']: (inventory['total'], inventory['reserved'])
            for each in deployment.providers(name).values()
            for inventory in each['inventories'].values()
        }
        if shown != {rp: (total, 0) for rp, total in wanted.get(name, {}).items()}:
            yield f'Placement shows {shown} of {name}, where there are {wanted.get(name)}'


def _clients(clients, arqs):
    for client in clients:
        for server in client.kept:
            for arq in server.arqs:
                row = arqs.get(arq['uuid'])
                if row is None or (row.state, row.instance_uuid) != (State.BOUND, server.uuid):
                    yield f'{arq["uuid"]} of {server.uuid} is no longer bound'
        for gone in client.gone:
            if gone in arqs:
                yield f'{gone} was deleted and is there'


def overdue(deployment, outages):
    """Binds that took longer than they may."""
    times = bind_times(deployment, outages)
    say(f'the longest bind took {max(times.values()):.1f} s')
    return [
        f'{arq} was in BindStarted for {took} s'
        for arq, took in times.items()
        if took > BIND_TIMEOUT + PROGRAM_TIMEOUT + SWEEP + SLACK
    ]


def bind_times(deployment, outages):
    """The longest time for which each request was in BindStarted, not counting when nobody could
    end that."""
    times = {}
    step = models.ArqTransition
    since = {}
    for arq, state, at in deployment.rows(
        sa.select(step.arq_uuid, step.to_state, step.created_at).order_by(step.id)
    ):
        if arq in since:
            began = since.pop(arq)
            out = sum(
                max((min(end, at) - max(begin, began)).total_seconds(), 0) for begin, end in outages
            )
            times[arq] = max(times.get(arq, 0), (at - began).total_seconds() - out)
        if state == State.BIND_STARTED:
            since[arq] = at
    return times


def tell(answers, killer):
    """What clients saw of it."""
    times = sorted(each.took for each in answers)
    failed = [each for each in answers if each.status >= 500]
    say(
        f'{len(answers)} answers, half within {times[len(times) // 2]:.3f} s, the 99th of a '
        f'hundred within {times[len(times) * 99 // 100]:.2f} s, the last after {times[-1]:.1f} s; '
        f'{len(failed)} were 5xx, '
        f'{sum(not each.is_within(killer.windows) for each in failed)} of them outside of faults'
    )
    for back in killer.broker_returns:
        late = [each.end - back for each in failed if back < each.end < back + 2 * RECOVERY]
        say(f'the last 5xx came {max(late, default=0):.1f} s after the broker was back')


@pytest.mark.flaky(reruns=0)  # what is lost once in two runs is lost
@pytest.mark.timeout(SECONDS + SETTLING + 600)
@pytest.mark.parametrize('database', [services.mariadb, services.postgresql], indirect=True)
def test_nothing_is_lost_or_left_behind_by_kills(tmp_path, broker, database):
    say(f'seed {SEED}')
    with Deployment(
        tmp_path, broker.url, database.url, conductors=2, conductor=CONDUCTOR, api=API, apis=2
    ) as deployment:
        deployment.start()
        deployment.host('compute1')
        deployment.host('compute2', ['0000:3b:00.0', '0000:d8:00.0']).slowness = 0.2
        deployment.host(
            'compute3', [fpga.ADDRESS], CLEANING, FPGA, 'intel_fpga_driver'
        ).slowness = 0.2
        for name, (_, group) in PROFILES.items():
            deployment.profile(name, group)
        for name, function in FUNCTIONS.items():
            image = deployment.glance.add(
                fpga.gbs(function), visibility='public', function_uuid=function
            )
            deployment.profile(name, {'resources:FPGA': '1', 'accel:bitstream_id': image})
        providers = {
            host: [
                each['uuid'] for each in deployment.providers(host).values() if each['inventories']
            ]
            for host in deployment.agents
        }
        over = threading.Event()
        clients = [NovaClient(deployment, providers, number, over) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        killer = Killer(deployment)
        try:
            killer.run(SECONDS, broker, database)
            quiet, seconds = killer.quiet(), time.monotonic() - killer.begin
        finally:
            over.set()
            for client in clients:
                client.join()
        bound = sum(client.bound for client in clients)
        say(f'{bound} servers were bound, {len(killer.outages)} things killed')
        answers = [each for client in clients for each in client.answers]
        calm = [each for each in answers if not each.is_within(killer.windows)]
        say(f'{quiet:.1f} of {seconds:.1f} s were outside of faults, with {len(calm)} answers')
        tell(answers, killer)
        end = time.monotonic() + SETTLING
        while (left := list(problems(deployment, clients))) and time.monotonic() < end:
            time.sleep(1)
        say('settled')
        assert left == []
        assert [each for client in clients for each in client.mistakes] == []
        assert [str(each) for each in answers if each.took > LATEST_ANSWER] == []
        assert [str(each) for each in calm if each.status >= 500] == []
        assert overdue(deployment, killer.outages) == []
        assert quiet > QUIET * seconds and len(calm) > CLIENTS
        assert bound > CLIENTS and any(client.kept for client in clients)
        done = dict(
            map(
                tuple,
                deployment.rows(
                    sa.select(models.Task.kind, sa.func.count())
                    .where(models.Task.state == 'done')
                    .group_by(models.Task.kind)
                ),
            )
        )
        say(f'tasks that were done: {done}')
        assert done.get('program') and done.get('clean')
