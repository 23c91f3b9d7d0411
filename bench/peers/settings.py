"""Tries the settings of the peers and keeps which is the quickest for a peer on a row of bench/run."""

import sys
from typing import NamedTuple

from known import AS_IT_IS, PEERS, Setting

SAME_LOSS = 0.01  # by how much of the first loss a setting may change the loss after the steps of a trial
SIZES = ("layers", "width", "heads", "hidden", "image")


class Trial(NamedTuple):
    parts: tuple  # the settings that were on together
    ms: float


def environment(setting, libraries):
    """What a setting adds to the environment of the peer's program."""
    starts = [start for start in setting.preload.split(":") if start]
    return setting.env | ({"LD_PRELOAD": ":".join(libraries[start] for start in starts)} if starts else {})


def together(parts):
    """Several settings as one."""
    if not parts:
        return AS_IT_IS
    env = {name: value for part in parts for name, value in part.env.items()}
    return Setting(", ".join(part.name for part in parts), sum((part.options for part in parts), []), env,
                   ":".join(part.preload for part in parts if part.preload))


class Settings:
    """`measure(row, who, setting, steps)` gives a record, or None and what went wrong; `lacks(row, who, setting)` says what is not run."""

    def __init__(self, kind, libraries, measure, lacks):
        self.kind, self.libraries, self.measure, self.lacks = kind, libraries, measure, lacks
        self.tried = {}  # (what rows share their trials, who) -> the key of the row that was tried, its Trials in their order
        self.wrong = []

    def work_of(self, row):
        step = row[2]
        return tuple(step.get(key) for key in ("model", "dtype") + (SIZES if self.kind == "size" else ()))

    def can_run(self, row, who, part):
        return (not part.preload or part.preload in self.libraries) and not self.lacks(row, who, part)

    def trials_of(self, row, who):
        return self.tried.get((self.work_of(row), who), ("", []))

    def best(self, row, who):
        """The quickest settings of the peer, but for those that the row does not allow, or what is wrong with the peer on the row; tries them
        where none has been."""
        key = (self.work_of(row), who)
        if self.kind != "plain" and key not in self.tried:
            trials, wrong = self.try_all(row, who)
            if wrong:
                return AS_IT_IS, wrong
            self.tried[key] = (row[0], trials)
        return together([part for part in self.quickest(row, who) if self.can_run(row, who, part)]), ""

    def quickest(self, row, who):
        return min(self.trials_of(row, who)[1], key=lambda trial: trial.ms, default=Trial((), 0)).parts

    def try_all(self, row, who):
        peer = PEERS[who]
        start = tuple(part for part in self.quickest(row, peer.after) if self.can_run(row, who, part)) if peer.after else ()
        first, wrong = self.run(row, who, start)
        if wrong and start:  # what goes into the peer's own program may not go with this one
            self.wrong.append(self.failed(row, who, start, wrong))
            start = tuple(part for part in start if not part.options)
            first, wrong = self.run(row, who, start)
        if wrong:
            return [], wrong
        trials = [Trial(start, first["time"])]
        for group in peer.groups:
            start = min(trials, key=lambda trial: trial.ms).parts
            for parts in (start + (part,) for part in group if self.can_run(row, who, part)):
                record, wrong = self.run(row, who, parts)
                if not wrong and not abs(record["loss"] - first["loss"]) <= SAME_LOSS * abs(first["first_loss"]):
                    wrong = f"its loss is {record['loss']:.4f}, not {first['loss']:.4f}"
                if wrong:
                    self.wrong.append(self.failed(row, who, parts, wrong))
                else:
                    trials.append(Trial(parts, record["time"]))
        return trials, ""

    def failed(self, row, who, parts, wrong):
        return f"{PEERS[who].name} with '{together(parts).name}' on '{row[1]}': {wrong}"

    def run(self, row, who, parts):
        """A third of the row's steps. Of the quickest one the processor's time, which other work on a core does not lengthen, where one
        thread does the step."""
        setting = together(parts)
        record, wrong = self.measure(row, who, setting, max(2, row[4] // 3))
        if not wrong:
            record["time"] = record["min_cpu_ms" if row[3] * row[2].get("threads", 1) == 1 else "min_ms"]
        print(f"bench: trial {row[0]} {who} '{setting.name}': {wrong or format(record['time'], '.2f') + ' ms'}", file=sys.stderr)
        return record, wrong


def settings_lines(settings, rows, peers, title_of):
    """The page's table of what was taken for each row, and what the names mean."""
    if settings.kind == "plain" or not peers:
        return []
    used = {}

    def cell(row, who):
        tried, trials = settings.trials_of(row, who)
        if not trials or settings.lacks(row, who, AS_IT_IS):
            return "-"
        used.update({part.name: part.about for trial in trials for part in trial.parts})
        gain = trials[0].ms / min(trial.ms for trial in trials)
        return settings.best(row, who)[0].name + (f" ({gain:.2f})" if tried == row[0] and gain > 1 else "")

    table = [f"| {title_of(row)} | " + " | ".join(cell(row, who) for who in peers) + " |" for row in rows]
    share = "of the same model and size" if settings.kind == "size" else "of the same model"
    about = "; ".join(f"{name}: {text}" for name, text in used.items()) or "nothing"
    return ["| settings taken | " + " | ".join(PEERS[who].name for who in peers) + " |", "|---|" + "---|" * len(peers), *table, "",
            "Before its rounds each peer did some steps as it is, then with one setting after the other, each kind on top of the best before it; "
            f"PyTorch compiled starts from PyTorch's best. Rows {share} share what was found, but for what a row does not allow. In brackets: "
            f"the gain in the quickest step. Tried: {about}.", ""]
