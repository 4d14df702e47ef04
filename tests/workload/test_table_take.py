"""Taking rows of a table whose prompts name the answers of others."""

import numpy as np

from llmsim.workload import RequestTable


def test_an_answer_whose_author_is_not_taken_stays_a_stream_of_its_own() -> None:
    """Row 1 names input stream 0's successor and the answer of row 0, which stays behind: they must not mix."""
    segments = (np.array([0, 1, 3]), np.array([0, 1, -1]), np.array([0, 0, 0]), np.array([10, 10, 20]))
    table = RequestTable.build(arrival_s=[0, 1], prompt_tokens=[10, 30], output_tokens=20, segments=segments)
    streams = table.take(np.array([1])).segment_stream
    assert streams[0] == 1
    assert streams[1] not in (0, 1)
    assert streams[1] >= 0
    assert table.take(np.array([0, 1])).segment_stream.tolist() == [0, 1, -1]
