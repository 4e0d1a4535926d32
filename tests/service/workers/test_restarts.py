"""When a worker that ended is replaced, and when there is no point in it."""

from service.workers.restarts import RestartPolicy


def count(
    policy: RestartPolicy, now: float, answered: int = 0, *, ready: bool = True, attended: bool = False
) -> object:
    return policy.record_exit(now, answered, was_ready=ready, attended=attended)


def test_pauses_grow_and_the_fifth_in_a_row_is_the_last() -> None:
    """The first is replaced at once; a cause that passes within seconds does not end the service."""
    policy = RestartPolicy()
    assert [count(policy, now) for now in range(5)] == [0.0, 0.5, 1.0, 2.0, None]


def test_an_answer_begins_a_new_row() -> None:
    """Whichever worker gave it: the service serves."""
    policy = RestartPolicy()
    assert [count(policy, now, answered=now // 4) for now in range(12)] == [0.0, 0.5, 1.0, 2.0] * 3


def test_while_another_worker_serves_the_service_goes_on() -> None:
    """More and more slowly, and for as long as that one is there; then five more must end."""
    policy = RestartPolicy()
    pauses = [count(policy, now, attended=True) for now in range(7)]
    assert pauses == [0.0, 0.5, 1.0, 2.0, 4.0, 4.0, 4.0]
    assert [count(policy, now) for now in range(7, 12)] == [4.0, 4.0, 4.0, 4.0, None]


def test_workers_that_served_for_long_did_not_end_in_a_row() -> None:
    """One that ends each hour, while no client asks for anything, is replaced at once."""
    policy = RestartPolicy()
    assert [count(policy, 3600.0 * hour) for hour in range(9)] == [0.0] * 9


def test_workers_that_take_long_to_start_do_end_in_a_row() -> None:
    """A large model takes minutes to load: what it took is not time served."""
    policy = RestartPolicy()
    assert [count(policy, 300.0 * n, ready=False) for n in range(5)] == [0.0, 0.5, 1.0, 2.0, None]
