"""The demo's messages say what the data set says, and its figures are those of another library."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from e2e.demo.flights import data_file, encode, expected_figures, flights, number_of, read_rows, value_of

ROW = {
    "year": "2013",
    "dep_delay": "NA",
    "arr_delay": "-4.5",
    "carrier": "UA",
    "origin": "EWR",
    "tailnum": "N14",
}


def test_missing_values_become_null_and_numbers_stay_numbers() -> None:
    flight = encode(7, ROW)
    assert flight.subject == "flights.EWR.UA"
    assert json.loads(flight.payload) == {
        "id": 7,
        "publisher": "plain",
        "number": 4,
        "year": 2013,
        "dep_delay": None,
        "arr_delay": -4.5,
        "carrier": "UA",
        "origin": "EWR",
        "tailnum": "N14",
    }


def test_a_carrier_that_looks_like_a_number_stays_text() -> None:
    assert value_of("carrier", "9E") == "9E"
    assert value_of("carrier", "99") == "99"
    assert value_of("dep_delay", "-4.0") == -4


@pytest.mark.parametrize("number", [1, 336_776])
def test_the_number_is_read_back_without_parsing(number: int) -> None:
    assert number_of(encode(number, ROW).payload) == number


@pytest.mark.parametrize("payload", [b"", b"{}", b'{"id":', b'{"id":x,', b"garbage"])
def test_what_is_no_flight_is_refused(payload: bytes) -> None:
    with pytest.raises(ValueError):
        number_of(payload)


def test_the_whole_data_set_counts_as_pandas_counts_it() -> None:
    rows = read_rows(data_file())
    assert len(rows) == 336_776
    assert sum(1 for _ in zip(range(3), flights(rows), strict=False)) == 3
    table = pd.read_csv(data_file(), usecols=["origin", "carrier", "dep_delay"])
    grouped = table.groupby(["origin", "carrier"])["dep_delay"].agg(["size", "count", "sum"])
    figures = {
        group: (value.flights, value.departed, value.delay_minutes)
        for group, value in expected_figures(rows).items()
    }
    assert figures == {
        group: tuple(int(cell) for cell in cells)
        for group, cells in zip(grouped.index, grouped.values, strict=True)
    }
