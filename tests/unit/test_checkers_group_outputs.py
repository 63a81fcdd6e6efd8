"""The rules for outputs and dead letters of a group: good histories, and each anomaly."""

from collections.abc import Callable

import pytest
from hand_history import Story
from judging import judged

from lognode.chaos.verdict import Result

A, B = 3, 4
"""The processes of two consumers."""
DEAD = "dead_letter:chaos-dead"
Tell = Callable[[Story], None]


def _judged(story: Story) -> Result:
    story.end()
    return judged("group", story)


def names(story: Story) -> set[str]:
    return {one.name for one in _judged(story).anomalies}


def of(entries: int) -> Story:
    story = Story()
    for number in range(1, entries + 1):
        story.append(f"p1-{number}", number)
    return story


def done(story: Story, *outputs: tuple[int, str], token: int = 9) -> None:
    """Acknowledge outputs, let a consumer wait in vain, and look at the group."""
    if outputs:
        got = [["k+", token, 1, [list(each) for each in outputs]]]
        story.do(B, "take", {}, {"batches": got})
        story.settle(B, "ack", token, outputs[-1][0], "k+")
    story.take(B)
    story.group()


# Outputs.


def test_outputs_that_are_made_in_the_step_of_their_acknowledgement_are_valid() -> None:
    story = of(3)
    story.take(A, (1, [1, 2]))
    story.transform(A, 1, {1: ("c3-1", 11), 2: ("c3-2", 12)})
    story.take(B, (2, [3]))
    story.transform(B, 2, {3: ("c4-1", 13)})
    done(story, (11, "c3-1"), (12, "c3-2"), (13, "c4-1"))
    result = _judged(story)
    assert result.verdict == "valid", (result.anomalies, result.unknown)
    assert (result.counts["outputs"], result.counts["acknowledged entries"]) == (3, 6)


def test_an_append_without_an_answer_has_happened_as_a_whole_or_not_at_all() -> None:
    story = of(1)
    story.take(A, (1, [1]))
    story.transform(A, 1, {1: ("c3-1", 11)}, type="info", there=["c3-1"])
    done(story, (11, "c3-1"))
    assert _judged(story).verdict == "valid"
    story = of(1)
    story.take(A, (1, [1]))
    story.transform(A, 1, {1: ("c3-1", 11)}, type="info")
    story.take(B, (2, [1]))
    story.transform(B, 2, {1: ("c4-1", 12)})
    done(story, (12, "c4-1"))
    assert _judged(story).verdict == "valid"


def output_without_acknowledgement(story: Story) -> None:
    """The output is there, and the entry comes again."""
    story.take(A, (1, [1, 2]))
    story.transform(A, 1, {1: ("c3-1", 11), 2: ("c3-2", 12)}, type="info", there=["c3-1", "c3-2"])
    story.take(B, (2, [1, 2]))
    story.settle(B, "ack", 2, 2)
    done(story, (11, "c3-1"), (12, "c3-2"))


def acknowledgement_without_output(story: Story) -> None:
    """The group goes on behind entries that nobody acknowledged otherwise."""
    story.take(A, (1, [1]))
    story.transform(A, 1, {1: ("c3-1", 11)}, type="info")
    story.take(B, (2, [2]))
    story.settle(B, "ack", 2, 2)
    done(story)


def acknowledgement_of_a_refused_append(story: Story) -> None:
    story.take(A, (1, [1]))
    story.transform(A, 1, {1: ("c3-1", 11)}, type="fail")
    story.take(B, (2, [2]))
    story.settle(B, "ack", 2, 2)
    done(story)


def part(story: Story) -> None:
    story.take(A, (1, [1, 2]))
    story.transform(A, 1, {1: ("c3-1", 11), 2: ("c3-2", 12)}, type="info", there=["c3-1"])
    done(story, (11, "c3-1"))


def twice(story: Story) -> None:
    """With one token: the answer of the first attempt was lost, and its numbers were not known."""
    story.take(A, (1, [1, 2]))
    story.transform(A, 1, {1: ("c3-1", 11), 2: ("c3-2", 12)})
    story.transform(A, 1, {2: ("c3-3", 13)})
    done(story, (11, "c3-1"), (12, "c3-2"), (13, "c3-3"))


def out_of_order(story: Story) -> None:
    story.take(A, (1, [1, 2]))
    story.transform(A, 1, {1: ("c3-1", 12), 2: ("c3-2", 11)})
    done(story, (11, "c3-2"), (12, "c3-1"))


@pytest.mark.parametrize(
    ("tell", "found"),
    [
        (output_without_acknowledgement, {"acked-twice", "again"}),
        (acknowledgement_without_output, {"out-of-order", "passed", "undelivered"}),
        (acknowledgement_of_a_refused_append, {"out-of-order", "passed", "undelivered"}),
        (part, {"torn"}),
        (twice, {"made-twice"}),
        (out_of_order, {"made-out-of-order", "nonmonotonic-send"}),
    ],
)
def test_S8_S10_outputs_that_break_a_promise_are_found(tell: Tell, found: set[str]) -> None:
    story = of(2)
    tell(story)
    assert names(story) == found


# Dead letters.


def rejected(story: Story) -> None:
    """The first entry fails for good, and the next one is done."""
    story.take(A, (1, [1, 2]))
    story.settle(A, "reject", 1, 1)
    story.take(B, (2, [2]))
    story.settle(B, "ack", 2, 2)
    story.take(B)
    story.group(on_dead=DEAD)


def test_an_entry_that_is_rejected_is_a_dead_letter_and_the_next_goes_on() -> None:
    story = of(2)
    rejected(story)
    story.letters(("k", 1, "p1-1"))
    result = _judged(story)
    assert result.verdict == "valid", (result.anomalies, result.unknown)
    assert result.counts["dead letters"] == 1


def test_an_entry_that_an_operator_let_go_on_may_be_done_and_be_a_dead_letter() -> None:
    story = of(2)
    story.take(A, (1, [1, 2]))
    story.settle(A, "reject", 1, 1)
    story.decide("retry")
    story.take(B, (2, [1, 2]))
    story.settle(B, "ack", 2, 2)
    story.take(B)
    story.group(on_dead=DEAD)
    story.letters(("k", 1, "p1-1"), ("k", 1, "p1-1"))
    assert _judged(story).verdict == "valid"


def missing(story: Story) -> None:
    rejected(story)
    story.letters()


def doubled(story: Story) -> None:
    rejected(story)
    story.letters(("k", 1, "p1-1"), ("k", 1, "p1-1"))


def of_an_acknowledged_entry(story: Story) -> None:
    rejected(story)
    story.letters(("k", 1, "p1-1"), ("k", 2, "p1-2"))


def delivered_afterwards(story: Story) -> None:
    story.take(A, (1, [1, 2]))
    story.settle(A, "reject", 1, 1)
    story.take(B, (2, [1, 2]))
    story.settle(B, "release", 2)
    story.take(B, (3, [2]))
    story.settle(B, "ack", 3, 2)
    story.take(B)
    story.group(on_dead=DEAD)
    story.letters(("k", 1, "p1-1"))


def never_copied(story: Story) -> None:
    story.take(A, (1, [1, 2]))
    story.settle(A, "reject", 1, 1)
    story.take(B)
    story.group(2, on_dead=DEAD, k=1)
    story.letters()


@pytest.mark.parametrize(
    ("tell", "found"),
    [
        (missing, {"out-of-order", "passed", "undelivered", "parked-delivered"}),
        (doubled, {"letter-twice"}),
        (of_an_acknowledged_entry, {"dead-and-done"}),
        (delivered_afterwards, {"parked-delivered"}),
        (never_copied, {"letter-missing"}),
    ],
)
def test_S8_G2_G4_dead_letters_that_break_a_promise_are_found(tell: Tell, found: set[str]) -> None:
    story = of(2)
    tell(story)
    assert names(story) == found


@pytest.mark.parametrize(
    "other",
    [
        {"dead_letter_key": "other"}, {"dead_letter_deliveries": "4"},
        {"dead_letter_deliveries": "many"}, {"own": "header"},
    ],
)  # fmt: skip
def test_S3_a_dead_letter_with_other_headers_is_found(other: dict[str, str]) -> None:
    story = of(2)
    rejected(story)
    story.letters(("k", 1, "p1-1"), **other)
    assert names(story) == {"false-letter"}


def test_S3_a_dead_letter_with_another_value_is_found() -> None:
    story = of(2)
    rejected(story)
    story.letters(("k", 1, "p1-2"))
    assert names(story) == {"false-letter"}


def test_without_a_read_of_the_dead_letters_nothing_is_said() -> None:
    story = of(2)
    rejected(story)
    story.letters(type="fail")
    result = _judged(story)
    assert not result.anomalies
    assert "dead letters of the group are unknown" in result.unknown[0]
