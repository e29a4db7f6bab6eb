import asyncio

import pytest

from streamingjob_operator.keyed_queue import KeyedQueue


class Worked:
    def __init__(self):
        self.keys = []
        self.at_once = {}
        self.most_at_once = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.fail = set()
        self.again = None

    async def __call__(self, key):
        self.at_once[key] = self.at_once.get(key, 0) + 1
        self.most_at_once = max(self.most_at_once, self.at_once[key])
        await self.gate.wait()
        self.at_once[key] -= 1
        self.keys.append(key)
        if key in self.fail:
            raise RuntimeError(key)
        return self.again


@pytest.fixture
async def worked():
    return Worked()


@pytest.fixture
async def queue(worked):
    failures = []
    queue = KeyedQueue(worked, on_failure=lambda key, error: failures.append((key, str(error))))
    queue.failures_seen = failures
    task = asyncio.create_task(queue.run(workers=4))
    yield queue
    task.cancel()


async def until(condition):
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


async def test_a_key_added_many_times_is_worked_on_once(queue, worked):
    for _ in range(100):
        queue.add("a")
    await until(lambda: worked.keys)
    await asyncio.sleep(0.05)
    assert worked.keys == ["a"]


async def test_a_key_is_never_worked_on_twice_at_a_time_and_what_comes_meanwhile_is_not_lost(queue, worked):
    worked.gate.clear()
    queue.add("a")
    await until(lambda: worked.at_once.get("a"))
    for _ in range(10):
        queue.add("a")
    await asyncio.sleep(0.02)
    worked.gate.set()
    await until(lambda: len(worked.keys) == 2)
    await asyncio.sleep(0.05)
    assert worked.keys == ["a", "a"] and worked.most_at_once == 1


async def test_a_hung_key_delays_no_other(queue, worked):
    worked.gate.clear()
    queue.add("hung")
    await until(lambda: worked.at_once.get("hung"))
    queue.add("other")
    await until(lambda: worked.at_once.get("other"))


async def test_a_failure_is_told_and_tried_again(queue, worked):
    worked.fail = {"a"}
    queue.add("a")
    await until(lambda: len(worked.keys) == 2)
    worked.fail = set()
    await until(lambda: len(worked.keys) == 3)
    assert queue.failures_seen == [("a", "a"), ("a", "a")]


async def test_the_earliest_of_two_times_counts(queue, worked):
    queue.add_after("a", 0.05)
    queue.add_after("a", 10)
    await until(lambda: worked.keys == ["a"])


async def test_work_may_ask_for_another_look(queue, worked):
    worked.again = 0.02
    queue.add("a")
    await until(lambda: len(worked.keys) >= 3)


async def test_a_forgotten_key_is_not_worked_on_again(queue, worked):
    queue.add_after("a", 0.05)
    queue.forget("a")
    await asyncio.sleep(0.1)
    assert worked.keys == []


async def test_a_key_that_fails_for_a_day_ends_nothing(queue, worked):
    worked.fail = {"a"}
    queue._failures["a"] = 2000
    queue.add("a")
    await until(lambda: worked.keys)
    queue.add("b")
    await until(lambda: "b" in worked.keys)
    assert queue._next_retry("a") == 60.0
