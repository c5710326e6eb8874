"""In which pass over a row each value of a group is computed: softmax takes three.

    stage 0: amax(x)          stage 1: exp(x - amax), its sum          stage 2: exp / sum

A full value stands in the stage of its latest operand; a row reduction's result can be used from the next stage on.
"""


def stages(group, reads):
    """value number -> stage: of the pass that computes a full value, or before which a row value is known.

    A column value has the stage 0: it is computed after all passes.
    """
    stage = {}
    for value in group.values:
        if group.level[value.number] == "column" and value.op.kind != "reduction":
            stage[value.number] = 0
            continue
        known = [stage.get(r.access.base.number, 0) for r in reads.by_value[value.number]]
        latest = max(known, default=0)
        is_row_reduction = value.op.kind == "reduction" and group.level[value.number] == "row"
        stage[value.number] = latest + 1 if is_row_reduction else latest
    return stage


def count_stages(group, reads, stored):
    """Passes over a row. A group without row reductions takes one."""
    stage = stages(group, reads)
    used = [0]
    for value in group.values:
        level = group.level[value.number]
        if level == "full" and value in stored:
            used.append(stage[value.number])
        elif value.op.kind == "reduction":
            used.append(stage[value.number] - (level == "row"))
    return max(used) + 1
