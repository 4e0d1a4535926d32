"""Several engines on one device."""

import threading
import time

from service.device import Device


def test_engines_that_always_have_work_alternate() -> None:
    """Never two at once, and nobody gets two turns while another waits."""
    device, order, inside = Device(), list[str](), list[int]()
    until = time.monotonic() + 0.3

    def work(name: str) -> None:
        while time.monotonic() < until:
            with device.turn():
                inside.append(1)
                assert len(inside) == 1
                order.append(name)
                time.sleep(0.001)
                inside.pop()

    threads = [threading.Thread(target=work, args=name) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(order) > 30
    counts = [order.count(name) for name in "abc"]
    assert max(counts) - min(counts) <= 3
    assert device.asked == 0


def test_a_released_turn_does_not_free_the_next_one() -> None:
    """A thread that was left behind and comes back cannot take the device from its successor."""
    device = Device()
    left = device.turn()
    device.release(left.__enter__())
    taken = device.turn()
    taken.__enter__()
    left.__exit__(None, None, None)
    assert device.asked == 1
    taken.__exit__(None, None, None)
    assert device.asked == 0
