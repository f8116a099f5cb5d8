from graphrerank.conf_folder import conf_folder
from tests.support import CONF


def test_conf_is_that_of_the_checkout() -> None:
    assert conf_folder() == CONF
