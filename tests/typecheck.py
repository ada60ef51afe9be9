"""The type checker of the test run: beartype over jaxtyping's shapes, ints being welcome where floats are meant."""

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
