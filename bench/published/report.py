"""The page docs/planner_accuracy.md from what was modelled and measured."""

import collections
import re
import statistics

from .devices import device_of
from .rows import source_of, system_of

Answer = collections.namedtuple("Answer", "row own_s step_s measured_s why_no_time plan why_no_plan bytes measured_bytes why_no_bytes")


def order_right(pairs):
    """Of two rows of one group whose steps differ by more than 5 %, how often the model says which is shorter."""
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
    lines = [f"Of {len(trained)} rows that trained, on devices whose memory is known, {len(trained) - len(too_large)} are predicted to fit; "
             f"of {len(ran_out)} that ran out of memory, {len(ran_out) - len(missed)} are predicted not to."]
    return lines + (["The others:", ""] + [f"- {each}" for each in too_large + missed] if too_large + missed else [])


def cut_of_plan(keys):
    """As flags, without what is usual."""
    usual = {"tp": "1", "pp": "1", "cp": "1", "ep": "1", "zero": "0", "micro_batches": "1", "sp": "false"}
    out = [f"{name} {keys.get('parallel.' + name, keys.get(name))}" for name in usual
           if keys.get("parallel." + name, keys.get(name, usual[name])) != usual[name]]
    if keys.get("parallel.pp") != "1":
        out.append(keys["parallel.schedule"] + (f" of {keys['parallel.virtual_stages']}" if keys["parallel.virtual_stages"] != "0" else ""))
    if keys.get("train.recompute") != "none":
        out.append("recompute " + keys["train.recompute"])
    return ", ".join(out) or "data parallel"


def plan_lines(answers):
    """Of each shape once: our plan's step beside the published configuration's."""
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
             "For each configuration `trireme plan --search exact` plans the same model, ranks and batch on the same machine, within the memory of its",
             "devices and with the bytes that Trireme keeps (f32 parameters and state), and the plan's step is modelled as the published one's is. The",
             "published one is modelled whether it would fit with these bytes or not. The goal is a step that is no longer in every row.", "",
             f"Of {len(rows)} configurations our plan takes as long or less in {faster}."]
    without = [answer for answer in answers if answer.step_s is not None and answer.plan is None]
    if without:
        lines += [f"Of rows whose step is modelled {len(without)} have no plan:", ""] + reasons(without, lambda answer: answer.why_no_plan)
    return lines + [""] + table(f"{CUT_HEAD} published, modelled, s | our plan, modelled, s | difference | our plan |", rows)


def report(answers):
    timed = [answer for answer in answers if answer.step_s is not None]
    sized = [answer for answer in answers if not answer.why_no_bytes]
    times, sizes = collections.defaultdict(list), collections.defaultdict(list)
    for answer in timed:
        times[f"{source_of(answer.row)}, {answer.row['hw']}"].append((answer.row, answer.step_s, answer.measured_s))
    for answer in sized:
        sizes[f"{source_of(answer.row)}, {answer.row['hw']}"].append((answer.row, answer.bytes, answer.measured_bytes))
    lines = ["# How near predictions are to published runs", "",
             "Written by `bench/planner_accuracy --runs TABLE`; nothing here is typed by hand. TABLE has published, measured training runs, a",
             "row each; it is not part of the repository. Nothing is fitted to its rows: devices are those of data sheets and of published measurements",
             "(`bench/published/devices.py`), and what the systems that were measured do otherwise than Trireme is said by a profile of each, from papers,",
             "manuals and their sources (`bench/published/systems.py`):", ""]
    used = {system_of(answer.row).name: system_of(answer.row).source for answer in timed + sized}
    lines += [f"- {name}: {source}" for name, source in sorted(used.items())]
    head = "| source | rows | mean error | mean of signed errors | worst |"
    lines += ["", "## Step time", "",
              "Each row is compiled for all of its ranks and its step modelled in virtual time (`trireme simulate`). With more than twice as many",
              "micro-batches as stages, two numbers of micro-batches are compiled and the line through them is taken. What the system does otherwise is",
              "added (`bench/published/steps.py`): passes of its optimizer and loss, gradients that a kernel of its own adds, what a full recompute runs",
              "although nothing reads it, sums and messages that it waits for. The mean of the signed errors says what that leaves out: stragglers, data,",
              "logs. The order is right where of two ways to train one model, whose steps differ by more than 5 %, the shorter one is predicted to be the",
              "shorter.", ""]
    lines += table(head + " order right |", summary(times))
    lines += ["", f"Of {len(answers)} rows of the table the steps of {len(timed)} are modelled. The others:", ""]
    lines += reasons([answer for answer in answers if answer.step_s is None], lambda answer: answer.why_no_time)
    lines += plan_lines(answers)
    lines += ["", "## Memory", "",
              "Published systems keep other bytes than Trireme, so that what is compared here are the profiles (`bench/published/memory.py`): their bytes of a",
              "parameter, the activations of Korthikanti et al. (2022), logits, and a workspace, of the stage whose rank tells its memory. What an allocator",
              "keeps beside, kernels and communication take is not in them. What Trireme itself takes is known to the byte (`trireme explain --stage memory`).",
              ""]
    lines += table(head, without_last(summary(sizes)))
    lines += [""] + fits_lines(answers)
    lines += ["", f"Of {len(answers)} rows the memory of {len(sized)} is predicted and was measured. The others:", ""]
    lines += reasons([answer for answer in answers if answer.why_no_bytes], lambda answer: answer.why_no_bytes)
    for title, groups, unit, scale in (("Steps", times, "s", 1), ("Memory", sizes, "GB", 1e-9)):
        for name, pairs in sorted(groups.items()):
            lines += ["", f"## {title}: {name}", ""]
            lines += table(f"{CUT_HEAD} measured, {unit} | predicted, {unit} | error |",
                           [cut_cells(row) + [f"{scale * measured:.3f}", f"{scale * predicted:.3f}", percent(predicted / measured - 1)]
                            for row, predicted, measured in pairs])
    return "\n".join(lines) + "\n"
