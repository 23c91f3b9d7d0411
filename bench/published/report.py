"""The page docs/planner_accuracy.md from what was modelled and measured."""

import collections
import re
import statistics

from .devices import device_of
from .rows import source_of, system_of
from .steps import MOST_COMPILED

Answer = collections.namedtuple("Answer", "row own_s step_s measured_s why_no_time plan why_no_plan bytes measured_bytes why_no_bytes")


def order_right(pairs):
    """Among pairs of rows of one group whose steps differ by more than 5 %, how often the model says which is shorter."""
    right = all_pairs = 0
    for i, (a, x) in enumerate(pairs):
        for b, y in pairs[i + 1:]:
            if abs(x - y) <= 0.05 * min(x, y):
                continue
            all_pairs += 1
            right += (a < b) == (x < y)
    return right, all_pairs


def cut_cells(row):
    return [row["model"], row["n"], row["TP"] or "1", row["PP"] or "1", row["VPP"].replace("layers/vstage=", "1 of ") or "1",
            row["DP"] or "-", row["zero"] or "0", row["mbs"], row["GBS"], row["seq"], row["recompute"] or "-"]


CUT_HEAD = "| model | ranks | tp | pp | virtual | dp | zero | micro-batch | batch | sequence | recompute |"


def table(head, rows):
    columns = head.count("|") - 1
    return [head, "|" + "---|" * columns] + ["| " + " | ".join(cells) + " |" for cells in rows]


def percent(error):
    return f"{100 * error:+.1f} %"


def summary(groups):
    rows = []
    for name, pairs in sorted(groups.items()):
        errors = [predicted / measured - 1 for _, predicted, measured in pairs]
        by_model = collections.defaultdict(list)
        for row, predicted, measured in pairs:
            by_model[(row["model"], row["n"], row["GBS"], row["seq"])].append((predicted, measured))
        right, all_pairs = (sum(part) for part in zip(*(order_right(each) for each in by_model.values())))
        rows.append([name, str(len(pairs)), f"{100 * statistics.mean(map(abs, errors)):.1f} %", percent(statistics.mean(errors)),
                     percent(max(errors, key=abs)), f"{right} of {all_pairs}" if all_pairs else "-"])
    return rows


def without_last(cells):
    return [row[:-1] for row in cells]


def reasons(answers, why):
    counts = collections.Counter(re.sub(r"'.*'", "'...'", why(answer)) for answer in answers)
    return [f"- {count}: {reason}" for reason, count in sorted(counts.items(), key=lambda each: (-each[1], each[0]))]


def told(answer, device):
    return (f"{answer.row['model']}, {answer.row['n']} ranks, tp {answer.row['TP']}, micro-batch {answer.row['mbs']} "
            f"({answer.bytes / 1e9:.1f} GB of {device.bytes / 1e9:.1f})")


def fits_lines(answers):
    """Whether rows that trained are predicted to fit, and those that ran out of memory not to."""
    known = [(answer, device_of(answer.row)) for answer in answers if answer.bytes is not None and device_of(answer.row)]
    trained = [(answer, device) for answer, device in known if not answer.row["oom"].strip()]
    ran_out = [(answer, device) for answer, device in known if answer.row["oom"].strip()]
    too_large = [told(answer, device) for answer, device in trained if answer.bytes > device.bytes]
    missed = [told(answer, device) for answer, device in ran_out if answer.bytes <= device.bytes]
    lines = [f"On devices whose memory is known, {len(trained) - len(too_large)} of the {len(trained)} rows that trained are predicted to fit."]
    lines += [f"{len(ran_out) - len(missed)} of the {len(ran_out)} that ran out of memory are predicted not to." if ran_out
              else "The table has no row there that ran out of memory."]
    return lines + (["The other rows:", ""] + [f"- {each}" for each in too_large + missed] if too_large + missed else [])


def cut_of_plan(keys):
    """As flags, without those at their defaults."""
    usual = {"tp": "1", "pp": "1", "cp": "1", "ep": "1", "zero": "0", "micro_batches": "1", "sp": "false"}
    out = [f"{name} {keys.get('parallel.' + name, keys.get(name))}" for name in usual
           if keys.get("parallel." + name, keys.get(name, usual[name])) != usual[name]]
    if keys.get("parallel.pp") != "1":
        out.append(keys["parallel.schedule"] + (f" of {keys['parallel.virtual_stages']}" if keys["parallel.virtual_stages"] != "0" else ""))
    if keys.get("train.recompute") != "none":
        out.append("recompute " + keys["train.recompute"])
    return ", ".join(out) or "data parallel"


def plan_lines(answers):
    """Our plan's step beside the published configuration's, once for each shape."""
    rows, seen, faster = [], set(), 0
    planned = [answer for answer in answers if answer.plan is not None]
    for answer in planned:
        cells = cut_cells(answer.row)
        if (key := tuple(cells) + (answer.row["hw"], source_of(answer.row))) in seen:
            continue
        seen.add(key)
        ratio = answer.plan["step_s"] / answer.own_s - 1
        faster += ratio <= 0
        rows.append(cells + [f"{answer.own_s:.3f}", f"{answer.plan['step_s']:.3f}", percent(ratio) + ("" if ratio <= 0 else " (missed)"),
                             cut_of_plan(answer.plan["keys"])])
    if not rows:
        return []
    lines = ["", "## Our plan beside the published one", "",
             "For each published configuration `trireme plan --search exact` plans the same model, number of ranks and batch on the same machine. Up to",
             f"{MOST_COMPILED} ranks the ways that it shows are compiled (`--compile`), of which the fastest in virtual time is the plan. The plan",
             "must fit in the devices' memory with the bytes that Trireme keeps (f32 parameters and state). Its step is modelled in the same way as that of",
             "the published configuration, which is modelled even if it would not fit with these bytes. The goal is a step that is never longer than the",
             "published configuration's.", "",
             f"Our plan is as fast or faster for {faster} of {len(rows)} configurations."]
    without = [answer for answer in answers if answer.step_s is not None and answer.plan is None]
    if without:
        lines += [f"{len(without)} rows whose step is modelled have no plan:", ""] + reasons(without, lambda answer: answer.why_no_plan)
    return lines + [""] + table(f"{CUT_HEAD} published, modelled, s | our plan, modelled, s | difference | our plan |", rows)


def report(answers):
    timed = [answer for answer in answers if answer.step_s is not None]
    sized = [answer for answer in answers if not answer.why_no_bytes]
    times, sizes = collections.defaultdict(list), collections.defaultdict(list)
    for answer in timed:
        times[f"{source_of(answer.row)}, {answer.row['hw']}"].append((answer.row, answer.step_s, answer.measured_s))
    for answer in sized:
        sizes[f"{source_of(answer.row)}, {answer.row['hw']}"].append((answer.row, answer.bytes, answer.measured_bytes))
    lines = ["# How close predictions are to published runs", "",
             "This page compares predicted step times and memory with those of published training runs. `bench/planner_accuracy --runs TABLE` writes it;",
             "nothing is typed by hand. TABLE lists published, measured runs, one per row, and is not part of the repository.", "",
             "Nothing is fitted to the table's rows. The figures of devices come from data sheets and published measurements",
             "(`bench/published/devices.py`). The measured systems do some things differently from Trireme; a profile of each system says which, from papers,",
             "manuals and the system's source (`bench/published/systems.py`):", ""]
    used = {system_of(answer.row).name: system_of(answer.row).source for answer in timed + sized}
    lines += [f"- {name}: {source}" for name, source in sorted(used.items())]
    head = "| source | rows | mean error | mean of signed errors | worst |"
    lines += ["", "## Step time", "",
              "Each row is compiled for all of its ranks, and its step is modelled in virtual time (`trireme simulate`). A row with more than twice as many",
              "micro-batches as stages (without a pipeline, more than four) is compiled for two smaller numbers of micro-batches, and its step time is",
              "extrapolated linearly from these. Then the time of what the system does differently is added (`bench/published/steps.py`): passes of its",
              "optimizer and its loss over memory, kernels that only copy, cast or add gradients, ops that full recomputation runs although nothing reads",
              "their results, and sums and messages that are not hidden. The model knows nothing of stragglers, data loading and logging; the mean of the",
              "signed errors shows their share.", "",
              "The last column counts pairs of ways to train one model whose measured steps differ by more than 5 %: in how many of them the way that was",
              "faster is also predicted to be faster.", ""]
    lines += table(head + " order right |", summary(times))
    lines += ["", f"The steps of {len(timed)} of the table's {len(answers)} rows are modelled. The others:", ""]
    lines += reasons([answer for answer in answers if answer.step_s is None], lambda answer: answer.why_no_time)
    lines += plan_lines(answers)
    lines += ["", "## Memory", "",
              "Published systems keep different data in memory than Trireme does, so this section checks the profiles (`bench/published/memory.py`), not",
              "Trireme's own memory, which is known to the byte (`trireme explain --stage memory`). A profile adds up, for the stage whose rank reports its",
              "memory, the system's bytes per parameter, activations by the formulas of Korthikanti et al. (2022), logits and a workspace. It leaves out what",
              "the allocator holds in reserve and what kernels and communication take.", ""]
    lines += table(head, without_last(summary(sizes)))
    lines += [""] + fits_lines(answers)
    lines += ["", f"The memory of {len(sized)} of {len(answers)} rows is both predicted and measured. The others:", ""]
    lines += reasons([answer for answer in answers if answer.why_no_bytes], lambda answer: answer.why_no_bytes)
    for title, groups, unit, scale in (("Steps", times, "s", 1), ("Memory", sizes, "GB", 1e-9)):
        for name, pairs in sorted(groups.items()):
            lines += ["", f"## {title}: {name}", ""]
            lines += table(f"{CUT_HEAD} measured, {unit} | predicted, {unit} | error |",
                           [cut_cells(row) + [f"{scale * measured:.3f}", f"{scale * predicted:.3f}", percent(predicted / measured - 1)]
                            for row, predicted, measured in pairs])
    return "\n".join(lines) + "\n"
