from ottla.broker.metrics.tls_metrics import tls_families


def test_a_listener_that_encrypts_shows_its_handshakes_and_the_end_of_its_certificate() -> None:
    handshakes, expiry = tls_families(
        {
            "network.connections": 3,
            "tls.out.handshakes.succeeded": 5,
            "tls.out.handshakes.failed": 2,
            "tls.out.certificate.expires.seconds": 1.9e9,
        }
    )
    assert list(handshakes.samples) == [(("OUT", "succeeded"), 5), (("OUT", "failed"), 2)]
    assert list(expiry.samples) == [(("OUT",), 1.9e9)]


def test_a_broker_without_tls_shows_nothing_of_it() -> None:
    families = list(tls_families({"network.connections": 3}))
    assert [list(one.samples) for one in families] == [[], []]
