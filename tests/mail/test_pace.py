"""The rules of time, with made-up times: nothing here waits."""

from typing import Any

import pytest

from coterie.mail import pace as rules
from coterie.mail.pace import MISSES, Outlook, Pace, RoundTimes, Timing

NOW = 1000.0


def made(**timing: Any) -> Pace:
    """Three neighbours at work in round 1, as this peer is."""
    pace = Pace([1, 2, 3], Timing(**timing), 20)
    for neighbour in pace.neighbours.values():
        neighbour.alive = True
        neighbour.reach(1, False, NOW)
    pace.begin(1, [1, 2, 3], NOW)
    return pace


def awaited(pace: Pace) -> list[int]:
    return [s for s in (1, 2, 3) if pace.awaits(s)]


def rounds(pace: Pace, first: int, last: int, seconds: float = 1.0) -> float:
    """Rounds in which nobody is waited for; the time at their end."""
    now = NOW
    for number in range(first, last + 1):
        pace.begin(number, [], now)
        now += seconds
        pace.end(now)
    return now


class TestDeadline:
    def test_it_follows_the_rounds(self) -> None:
        pace, now = made(deadline=30, stretch=4), NOW
        for number, seconds in enumerate([2.0, 3.0, 50.0], 1):
            assert pace.deadline == 30
            pace.begin(number, [], now)
            now += seconds
            pace.end(now)
        assert pace.deadline == 4 * 3.0  # the median: one slow round does not count
        rounds(pace, 4, 11, 0.001)
        assert pace.deadline == rules.SHORTEST_DEADLINE

    def test_what_others_needed_to_catch_up_is_part_of_a_round(self) -> None:
        pace, now = made(stretch=4), NOW
        for number in range(1, 5):
            pace.go_on([], now, now + 2.0)
            pace.begin(number, [], now + 2.0)
            pace.end(now + 5.0)
            now += 5.0
        assert pace.times.round_seconds == 5.0
        assert pace.deadline == 20.0

    def test_a_round_that_waited_in_vain_says_nothing_of_how_long_rounds_take(self) -> None:
        pace, now = made(deadline=5.0), NOW
        for number in range(1, 6):
            pace.begin(number, [1, 2, 3], now)
            pace.waited([1], False, now, now + 5.0)
            pace.end(now + 6.0)
            now += 6.0
        assert pace.deadline == 5.0
        assert pace.times.history == [[], [1.0] * 5]  # but they tell what the work takes

    def test_waiting_alone_cannot_drive_it_up(self) -> None:
        """Rounds that consist of waiting would have longer and longer deadlines, and more to wait for."""
        pace, now = made(deadline=10, stretch=4), NOW
        for number in range(1, 6):
            pace.begin(number, [1, 2, 3], now)
            pace.waited([], True, now + 1.0, now + 100.0)
            pace.end(now + 100.0)
            now += 100.0
        assert pace.deadline == 10

    def test_rounds_in_which_nobody_came_in_time_make_it_patient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rules, "SHORTEST_DEADLINE", 0.0)
        pace = made(deadline=40)
        now = rounds(pace, 1, 4)
        assert pace.deadline == 4.0
        for number, deadline in ((5, 8.0), (6, 16.0), (7, 32.0), (8, 40.0)):
            pace.go_on([1, 2, 3], now, now)
            pace.begin(number, [1, 2, 3], now)
            outlook = pace.outlook([1, 2, 3], 0, 3, now, pace.deadline, now)
            assert outlook == Outlook(True)  # who was given up before the round is not waited for in it
            pace.waited(outlook.overdue, False, now, now)
            pace.end(now)
            assert pace.deadline == deadline
        pace.go_on([2, 3], now, now)
        pace.begin(9, [1, 2, 3], now)
        pace.waited((), True, now, now)
        pace.end(now)
        assert pace.deadline == 4.0

    def test_who_waits_for_several_turns_waits_longer(self) -> None:
        assert made(deadline=10, turns=5).deadline == 50
        slow, now = made(deadline=10, turns=5), NOW
        for number in range(1, 6):
            slow.begin(number, [1, 2, 3], now)
            slow.waited([], True, now + 1.0, now + 100.0)
            slow.end(now + 100.0)
            now += 100.0
        assert slow.deadline == 50  # of what was waited for five times as much is believed

    def test_the_next_process_knows_what_rounds_took(self) -> None:
        pace, again = made(), RoundTimes()
        rounds(pace, 1, 4)
        again.history = pace.times.history
        assert again.deadline(pace.timing) == pace.deadline == 4.0


class TestWhoIsWaitedFor:
    def test_after_three_misses_nobody_waits(self) -> None:
        pace, start = made(deadline=10), NOW
        for number in range(1, MISSES + 1):
            pace.neighbours[1].reach(number, False, start)
            pace.begin(number, [1, 2, 3], start)
            assert awaited(pace) == [1, 2, 3]
            late = start + 2 * pace.deadline
            outlook = pace.outlook([2], 1, 2, start, pace.deadline, late)
            assert outlook == Outlook(True, (2,))
            pace.waited(outlook.overdue, True, start, late)
            pace.end(late)
            start = late
        assert pace.neighbours[2].misses == MISSES
        pace.begin(MISSES + 1, [1, 2, 3], start)
        assert awaited(pace) == [1, 3]
        assert pace.outlook([2], 1, 2, start, 1e6, start) == Outlook(True)  # at once, and it misses nothing
        pace.neighbours[2].heard(True)
        assert awaited(pace) == [1, 2, 3]

    def test_who_says_that_it_keeps_pace_is_waited_for_again(self) -> None:
        pace = made()
        for number, again in ((5, False), (4, True)):
            pace.neighbours[2].reach(3, False, NOW)
            pace.neighbours[2].misses = MISSES
            pace.begin(number, [1, 2, 3], NOW)
            assert pace.awaits(2) == again

    def test_who_is_lost_is_waited_for_if_there_is_time_to_come_back(self) -> None:
        pace = made(grace=10.0)
        pace.neighbours[1].finished = True
        for lost in (1, 2):
            pace.lose(lost, NOW)
        assert awaited(pace) == [2, 3]  # of who has finished there is nothing more to come
        assert not pace.outlook([2], 1, 2, NOW, 30.0, NOW + 9).over
        pace.let_go(NOW + 9)
        assert awaited(pace) == [2, 3]
        pace.let_go(NOW + 10)
        assert awaited(pace) == [3]
        assert pace.outlook([2], 1, 2, NOW, 30.0, NOW + 10) == Outlook(True)  # and it has missed nothing

    def test_who_is_back_is_waited_for_as_ever(self) -> None:
        pace = made(grace=10.0)
        pace.lose(2, NOW)
        pace.neighbours[2].alive = True
        pace.let_go(NOW + 20)
        assert awaited(pace) == [1, 2, 3]

    def test_who_is_lost_and_no_time_is_given_is_not_waited_for(self) -> None:
        pace = made()
        pace.lose(2, NOW)
        assert awaited(pace) == [1, 3]

    def test_who_only_says_so_has_chances_after_pauses_that_double(self) -> None:
        pace, chances = made(), []
        pace.neighbours[2].misses = MISSES
        for number in range(2, 20):
            pace.neighbours[2].reach(number, False, NOW)
            pace.begin(number, [1, 2, 3], NOW)
            if pace.awaits(2):
                chances.append(number)
                pace.waited([2], True, NOW, NOW)
        assert chances == [2, 3, 5, 9, 17]

    def test_a_message_gives_all_chances_back(self) -> None:
        pace = made()
        neighbour = pace.neighbours[2]
        neighbour.misses, neighbour.pause, neighbour.chance = MISSES, 16, 20
        neighbour.heard(True)
        assert pace.awaits(2)
        neighbour.misses = MISSES
        neighbour.reach(2, False, NOW)
        pace.begin(2, [1, 2, 3], NOW)
        assert pace.awaits(2)

    def test_who_has_nothing_to_say_after_rubbish_is_still_not_waited_for(self) -> None:
        pace = made()
        pace.neighbours[2].sound = False
        pace.neighbours[2].heard(False)
        assert awaited(pace) == [1, 3]
        pace.neighbours[2].heard(True)
        assert awaited(pace) == [1, 2, 3]

    def test_if_all_are_slow_none_is_left_behind(self) -> None:
        """Who runs on alone at its own pace learns from nobody."""
        pace = made(deadline=10)
        for neighbour in pace.neighbours.values():
            neighbour.misses = MISSES
        assert awaited(pace) == [1, 2, 3]
        assert pace.limit(1, NOW, 10) == NOW + 10  # one deadline, not two
        pace.neighbours[3].misses = 0
        assert awaited(pace) == [3]
        pace.neighbours[3].alive = False
        assert awaited(pace) == [1, 2]
        pace.neighbours[3].alive, pace.neighbours[3].first = True, 10**9  # who never comes is no company
        assert awaited(pace) == [1, 2]
        assert pace.behind(5, sits=True, patient=True) == []  # there is no end to that

    def test_who_is_held_up_by_others_has_longer(self) -> None:
        pace = made(deadline=10)
        pace.begin(4, [1, 2, 3], NOW)
        pace.neighbours[1].reach(4, False, NOW)
        pace.neighbours[2].reach(3, False, NOW)
        pace.neighbours[3].reach(4, False, NOW + 3)  # it began later than I began to wait
        assert [pace.limit(s, NOW, 10) - NOW for s in (1, 2, 3)] == [10, 20, 13]
        assert pace.outlook([1, 2], 1, 3, NOW, 10, NOW + 10) == Outlook(False, (1,))
        assert pace.outlook([1, 2], 1, 3, NOW, 10, NOW + 20) == Outlook(True, (1, 2))

    @pytest.mark.parametrize("why", ["gone", "finished", "silenced", "skipped", "rubbish", "ahead"])
    def test_nobody_waits_for_who_cannot_come(self, why: str) -> None:
        pace = made()
        pace.begin(2, [1, 2] if why == "silenced" else [1, 2, 3], NOW)
        neighbour = pace.neighbours[3]
        neighbour.reach({"skipped": 3, "ahead": 4}.get(why, 1), why == "finished", NOW)
        neighbour.alive, neighbour.sound = why != "gone", why != "rubbish"
        neighbour.first = 3 if why == "skipped" else 0  # it caught up with others, and says so
        assert not pace.overtaken  # that one of three is ahead does not end the wait for the others
        assert pace.outlook([3], 2, 3, NOW, 1e6, NOW) == Outlook(True)
        assert pace.outlook([2, 3], 1, 3, NOW, 1e6, NOW) == Outlook(False)

    def test_who_does_come_is_waited_for_until_the_deadline(self) -> None:
        pace = made()
        assert pace.outlook([3], 2, 3, NOW, 30, NOW + 29.9) == Outlook(False)
        assert pace.outlook([], 3, 3, NOW, 30, NOW) == Outlook(True)
        assert pace.outlook([3], 2, 3, NOW, 30, NOW + 30) == Outlook(True, (3,))

    def test_when_the_others_have_gone_on_waiting_is_of_no_use(self) -> None:
        pace = made()
        for neighbour in pace.neighbours.values():
            neighbour.reach(3, False, NOW)
        assert pace.overtaken
        assert pace.outlook([3], 2, 3, NOW, 30, NOW) == Outlook(True)

    def test_a_quorum_is_waited_for_beyond_the_deadline(self) -> None:
        pace = made(quorum=2)
        late = NOW + 1e6
        assert pace.outlook([2, 3], 1, 3, NOW, 30, NOW) == Outlook(False)  # not the quorum yet, but the deadline
        assert pace.outlook([2, 3], 1, 3, NOW, 30, late) == Outlook(False, (2, 3), lacking=2)
        assert pace.outlook([2], 2, 3, NOW, 30, late) == Outlook(True, (2,))
        assert pace.outlook([2], 0, 1, NOW, 30, late) == Outlook(False, (2,), lacking=1)  # no more than were asked
        pace.neighbours[2].alive = False
        assert pace.outlook([2], 0, 1, NOW, 30, NOW) == Outlook(False, lacking=1)  # it may come back

    def test_a_quorum_is_not_waited_for_where_most_have_done_the_round(self) -> None:
        """Who has just joined hears nothing of a round that others began before they knew it."""
        pace, late = made(quorum=3), NOW + 1e6
        for node in (1, 2):
            assert not pace.outlook([3], 2, 3, NOW, 30, late).over
            pace.neighbours[node].reach(pace.round + 1, False, NOW)
        assert not pace.outlook([3], 2, 3, NOW, 30, NOW).over  # not before the deadline
        assert pace.outlook([3], 2, 3, NOW, 30, late).over


class TestHowFarTheOthersAre:
    def test_more_than_half_are_believed(self) -> None:
        pace = made()
        for node, round in ((1, 9), (2, 9), (3, 4)):
            pace.neighbours[node].reach(round, False, NOW)
        assert pace.front() == 9
        pace.neighbours[1].alive = False
        assert pace.front() == 4
        pace.neighbours[3].finished = True  # it stays for a while: there is a last exchange to take part in
        assert pace.front() == 4
        pace.neighbours[2].alive = pace.neighbours[3].alive = False
        assert pace.front() == 0

    def test_who_sends_rubbish_is_not(self) -> None:
        pace = made()
        pace.neighbours[2].sound = False
        pace.neighbours[2].reach(20, False, NOW)
        assert pace.front() == 1
        pace.neighbours[3].alive = False
        assert pace.front() == 0  # one of three is no majority

    def test_who_is_no_member_is_not(self) -> None:
        pace = made()
        pace.present = lambda neighbour, round: neighbour == 3
        for node, round in ((1, 9), (2, 9), (3, 4)):
            pace.neighbours[node].reach(round, False, NOW)
        assert pace.front() == 4

    def test_half_are_believed_if_they_are_sound_and_at_a_bounded_pace(self) -> None:
        pace = made()
        pace.present = lambda neighbour, round: neighbour != 3
        pace.neighbours[1].reach(18, False, NOW)
        rounds(pace, 1, 4)
        assert pace.front() == 1  # nothing sound has come from it
        pace.neighbours[1].heard(True)
        assert pace.front() == 1 + 1 + 5  # four rounds since the first, and a quarter more
        rounds(pace, 5, 8)
        assert pace.front() == 1 + 1 + 10
        pace.neighbours[1].reach(9, False, NOW)
        assert pace.front() == 9  # never further than it says

    def test_a_minority_hurries_nobody_while_a_majority_is_there(self) -> None:
        """Whatever it has sent, and also if one of the others is gone."""
        pace = made()
        for number in range(1, 9):
            pace.neighbours[1].heard(True)
            pace.neighbours[1].reach(number + 1000, False, NOW)
            for node in (2, 3):
                pace.neighbours[node].heard(True)
                pace.neighbours[node].reach(number, False, NOW)
            rounds(pace, number, number)
            assert pace.front() == number
            assert not pace.overtaken
        pace.neighbours[3].alive = False
        assert pace.front() == 8

    def test_whoever_is_up_first_is_no_majority(self) -> None:
        pace = Pace([1, 2, 3], Timing(), 20)
        pace.resume(0)
        for node, most in ((1, 0), (2, 19), (3, 19)):
            pace.neighbours[node].alive = True
            pace.neighbours[node].reach(20 - (node > 1), False, NOW)
            assert pace.majority == pace.front() == most

    def test_if_no_majority_is_there_others_are_believed_as_far_as_the_time_allows(self) -> None:
        pace = Pace([1, 2, 3], Timing(), 1000)
        pace.times.history = [[2.0] * 3, [1.0] * 3]
        pace.resume(100, away=80.0)  # as long as forty rounds
        pace.neighbours[1].alive = True
        pace.neighbours[1].reach(999, False, NOW)
        assert (pace.majority, pace.front()) == (0, 100 + 1 + 50)
        pace.neighbours[1].reach(120, False, NOW)
        assert pace.front() == 120
        pace.begin(120, [1], NOW)
        pace.neighbours[1].reach(999, False, NOW)
        assert pace.front() == 0  # it was away once
        rounds(pace, 121, 124)
        assert pace.front() == 120 + 1 + 5
        pace.neighbours[2].alive = True  # who is asked from now on
        pace.neighbours[2].reach(124, False, NOW)
        assert pace.front() == 124

    def test_who_comes_back_asks_the_majority_if_it_is_there(self) -> None:
        """However long it was away, and whatever a single one has sent meanwhile."""
        pace = Pace([1, 2, 3], Timing(), 1000)
        pace.times.history = [[2.0] * 3, [1.0] * 3]
        pace.resume(100, away=1e6)
        for node, round in ((1, 1000), (2, 101), (3, 101)):
            pace.neighbours[node].alive = True
            pace.neighbours[node].reach(round, False, NOW)
        pace.neighbours[1].heard(True)
        assert pace.front() == 101

    def test_the_pace_is_counted_from_where_most_others_were(self) -> None:
        """A peer that was taken along by the majority has had good reasons to be there."""
        pace = made()
        rounds(pace, 1, 4)
        for node in (1, 2):
            pace.neighbours[node].reach(12, False, NOW)
        assert pace.front() == 12
        rounds(pace, 12, 12)
        pace.present = lambda neighbour, round: neighbour > 1
        pace.neighbours[3].reach(20, False, NOW)
        pace.neighbours[3].heard(True)
        assert pace.front() == 12 + 1 + 1

    def test_the_first_of_an_unbroken_row_of_rounds(self) -> None:
        pace = made()
        for number, first in ((2, 0), (3, 0), (5, 5), (6, 5)):
            pace.begin(number, [], NOW)
            assert pace.first == first
        pace.resume(8)
        assert (pace.first, pace.round) == (9, 9)
        for number, first in ((9, 9), (10, 9), (12, 12)):
            pace.begin(number, [], NOW)
            assert pace.first == first


class TestCatchingUp:
    def test_neighbours_may_be_one_round_behind(self) -> None:
        pace = made()
        assert pace.behind(2) == []
        assert pace.behind(3) == [1, 2, 3]
        pace.neighbours[1].reach(2, False, NOW)
        assert pace.behind(3) == [2, 3]
        pace.neighbours[2].finished = True
        pace.neighbours[3].alive = False
        assert pace.behind(3) == []

    def test_who_sits_a_round_out_waits_until_the_others_are_in_it(self) -> None:
        pace = made()
        assert pace.behind(2, sits=True) == [1, 2, 3]
        pace.present = lambda neighbour, round: neighbour != 3
        assert pace.behind(2, sits=True) == [1, 2]  # who sits it out as well follows by itself
        assert pace.behind(2, sits=True, patient=True) == [1, 2]
        assert pace.behind(3, sits=True, patient=True) == [1, 2, 3]

    def test_at_most_half_who_are_behind_are_outnumbered(self) -> None:
        pace = made()
        assert not pace.outnumbered([1, 2])
        assert pace.outnumbered([1])
        pace.neighbours[2].alive = False
        assert pace.outnumbered([1])  # one of two
        pace.neighbours[3].alive = False
        assert not pace.outnumbered([1])

    def test_nobody_waits_in_asynchronous_mode(self) -> None:
        pace = made(mode="async")
        assert pace.behind(19) == []
        assert pace.behind(19, patient=True) == [1, 2, 3]

    def test_who_is_still_behind_misses_once_and_is_given_up_for_the_round(self) -> None:
        pace = made()
        pace.go_on([2], NOW, NOW + 30)
        assert [n.misses for n in pace.neighbours.values()] == [0, 1, 0]
        pace.begin(3, [1, 2, 3], NOW + 30)
        assert pace.outlook([2], 2, 3, NOW, 1e6, NOW) == Outlook(True)
        assert pace.outlook([2, 3], 1, 3, NOW, 1e6, NOW) == Outlook(False)

    def test_who_has_finished_is_no_company(self) -> None:
        pace = made()
        for neighbour in pace.neighbours.values():
            assert pace.unfinished
            neighbour.finished = True
        assert not pace.unfinished
