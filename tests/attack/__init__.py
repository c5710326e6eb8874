"""Attack: random programs with surgery between and inside their calls, eager against compiled, PyTorch and itself.

    python -m tests.attack --minutes 10            from a new seed
    python -m tests.attack --minutes 1 --seed 7    the programs of seed 7, 8, ...
    python -m tests.attack --minutes 5 --beside torch     eager mode beside PyTorch, within rounding
    python -m tests.attack --minutes 5 --beside python    eager mode in native code beside eager mode in Python

    fragments.py   what users write: statements, results, what is done with them, what changes between calls
    families.py    more of them, by kind: scans, layers, masks, derivatives of the user and of higher order, parts of
                   whole programs, and places that change
    programs.py    functions of a few tensors, called in turn
    again.py       graphs that are used again later, and changes of all that their nodes have kept or lead to
    many_sizes.py  functions that are called with ever new sizes
    on_arrays.py   functions of arrays, whose calls go to their program at once, and what they read outside
    whole.py       functions, methods and modules whose Python need not run, and what they read outside
    strangers.py   what programs of strangers do besides: Functions of all styles, hooks, methods, other memory, draws
    strange_programs.py  programs of that
    trainings.py   models that are trained
    compare.py     two runs of a program, and the first thing in which they differ
    beside_torch.py  the same program with torch under weft's name
    in_python.py   the same program in a process without native code
    minimise.py    a smaller program that differs too
    worker.py      runs seeds, in a process of its own: a crash ends it and not the attack

A program is Python source, and its own reproducer. What such runs have found stands in test_random_found.py and
test_replayed_*.py.

Runs so far, on a CPU shared with others: seeds 0 to 145, 1000 to 1165, 2000 to 2186, 3000 to 3162, 4000 to 4122, 5000
to 5121 and 6000 to 6082, two minutes of three with native replay, one without: 990 programs in 22 minutes. 22 were not
the same: mistakes of weft, mended since, and what the comparison has learned not to count. The last two runs, 205
programs, found no difference.

Later, on a CPU shared with many: seeds 100000 to 100042, 100100 to 100641 and 100642 to 102838, 2782 programs. 14 were
not the same: four mended (test_attack_found.py), one that differences.md says of memory that NumPy shows, two of
tensors that eager mode keeps too, and seven that wait: 101205, 101587, 102267, 102488, 102612, 102614, 102659.

Then seeds 200000 to 201698, 1699 programs: seven not the same, five of them mended; one names a node otherwise, and one
eager mode refuses. With the families added, which make other programs of the same seeds, 400000 to 401861, 1862
programs: ten not the same, among them wrong and missing gradients, mended (test_attack_found.py, test_closed_nodes.py).
What waits: names of nodes (400684, 401163, 401339), an error that only eager mode raises (401251, 401540) or that is of
another type (401278), a refusal (401296).

Beside PyTorch: seeds 500000 to 500334, 335 programs; 23 not the same: two mended; the others are what differences.md
says, what `beside_torch.py` has learned to leave out, or rounding; 500279 was not looked at.

Seeds 1123114700 to 1123115101, 402 programs in 15 minutes: one not the same, an AssertionError of the compiler, mended
(test_sink.py). Seeds 1123140000 to 1123140644, 645 programs: two not the same, which wait. 1123140052: after a
derivative with create_graph=True and a backward through it, another backward of the call's result raises in eager mode
only, once calls have been replayed. 1123140644: a hook runs in eager mode before the backward it is part of raises.
With parts of whole programs added (families.py: PARTS): seeds 1123150000 to 1123150022, all the same.

Seeds 1690000000 to 1690001472 and 1691000000 to 1691000197, 1671 programs. A crash: native index_add_ of another type
wrote behind its target (test_native_conversions.py). Four not the same: 1690001020, a result changed before a hook,
whose gradient was of what it became (mended, test_closed_nodes.py); 1690000228, which waits as 1123140644 does;
1690000712, of a tensor that eager mode keeps; 1690001187, which differences.md says of memory that NumPy shows. The
last 198, with all of that mended, were the same.

1123140052, 1123140644 and 1690000228, which waited (the generator makes other programs of these seeds now), are mended
(test_attack_found.py). Since a program's eager run is looked at once and garbage is collected without what is no
program's, a program takes 0.13 s of CPU, where it took 0.36. Seeds 1710000000 to 1710000558, 1710000600 to 1710001641
and 1710002000 to 1710003933, 3535 programs, at the lowest priority on two busy CPUs: six not the same. 1710002472,
gradients of a leaf from before and after a change, which were added up in another order, is mended
(test_compiled_inplace.py); 1710000400 and 1710001302 are what differences.md says of memory that NumPy shows;
1710002022 and 1710003395 raise in eager mode only; 1710001187 names a node otherwise, as 1710000563 does, after them.
The same hours' programs written by hand, of which eager and compiled calls and PyTorch were compared, found a KeyError
where second derivatives meet what they are of, and gradients lost by `detach_()` in a call.

Seeds 1720000000 to 1720000857, 858 programs: 14 not the same. Twelve were one TypeError, of functions of which more
than three sizes change by themselves (mended, test_compiled_several_sizes.py); two what differences.md says of memory
that NumPy shows, which eager mode with copies of that memory (compare.py) is asked about since; in one of the twelve,
with that mended, a node named otherwise (mended, test_attack_found.py).

Then 1721000000 to 1721001836, 1837 programs: four not the same. 1721000570 kept all calls before through a detached
state (mended, test_compiled_lifetime.py); 1721001826 counted tensors while a late change was learned; two are of memory
that NumPy shows. 1723000000 to 1723000804, 805 programs: one not the same, 1723000267, a gradient computed from what a
change in place had written (mended, test_attack_found.py). The CPU was shared with twenty other processes: 413 programs
in the first four minutes, 22 in the last. With functions of arrays (on_arrays.py) added, 330 programs of these alone,
seeds 100 to 399 and 5000 to 5029, were the same; in 45 of 60 of them calls went to their program at once. All that was
mended: 1724000000 to 1724000053, 54 programs, the same.

880000011, where eager mode refuses a backward and a compiled call goes by the copy of shown memory that
it has read, is in differences.md and test_exposed_memory.py.

Seeds 486156000 to 486157026 and 486317000 to 486322194, 6222 programs in 12 minutes on one quiet CPU, 8.5 a second,
functions whose Python need not run among them: two not the same. 486320160 ended the process: a read in the middle
gave the value that a backward needs of a tensor changed in place since to None (mended,
test_attack_found_gradients.py); what a graph keeps alive, 486317696, is in differences.md.

Seeds 1900000000 to 1900006025, 6026 programs, the CPU shared with many others: nine not the same. Mended are 1900000011
(`.data` of another shape before a backward), 1900000324 and 1900001544 (arguments that do not fit were asked about
without end, test_whole_calls.py), 1900000446 (a list in place of an array, test_prepared_calls.py), 1900001275 (names
before a tensor changed since) and 1900003746 (calls that raise kept the calls before, test_compiled_lifetime.py).
1900002188, a second derivative outside after an in-place change, is in differences.md. Two wait: 1900000435, where
`grad_fn` of a result whose `.data` was replaced has another name, and 1900003224, where a hook on a result of a call
with a backward inside is an error.

Seeds 1950000000 to 1950003013, 3014 programs: two not the same. 1950001298 changes a view of one of several views in
place (differences.md). 1950003013 ended the process: a backward beyond the recorded paths began with a NumPy number in
place of an array (mended, test_attack_found_gradients.py; as old as that line).

Seeds 533240000 to 533240503, 504 programs, the same. Then with what strangers write (strangers.py) and with functions
whose Python need not run (whole.py), on two CPUs shared with ten others: seeds 2100000000 to 2100001304, 1305 programs,
eight not the same. Four called the node of a result, which was an AttributeError of weft's own (mended,
test_nodes_of_calls.py, where a freed node that is called in eager mode was one too). 2100000138 changed a view of what
asked for gradients later, which was not refused (mended, test_views_left_behind.py). 2100000466 counted how often a
checkpoint runs its function, 2100000821 is of memory that NumPy shows (both differences.md), 2100000898 of a refusal
where eager mode raises for another reason, which the comparison has learned. 2110000000 to 2110000301, 302 programs:
2110000057 is of inference tensors (differences.md), in 2110000231 two threads drew random numbers, in any order. With
all that mended or left out: 2120000000 to 2120000118, 119 programs, the same. With PYTHONMALLOC=debug 2130000000 to
2130000033, between protected pages 2131000000 to 2131000052, between red zones to 2131000057, beside PyTorch
2140000000 to 2140000052 and 2140000100 to 2140000138 (51 that it can run): all the same.

Seeds 885778000 to 885779141, 1142 programs in three minutes: three not the same, none a wrong number. 885779070: a
change in place was refused because of a detached view that only the call's books kept (mended, test_attack_changes.py).
885778608, where a parameter was frozen between a checkpointed forward and its backward, and 885778630, a draw behind an
index that is out of range, are in differences.md, and the comparison knows them; that index found versions that went up
where nothing was written (mended, test_attack_changes.py). 881149002, of an earlier run, was the comparison's: eager
mode with copies of shown memory did not find out that other memory had changed.

Seeds 1911280000 to 1911282183, 1911283000 to 1911288321 and 1911290000 to 1911294129, 11636 programs on two CPUs
shared with ten others, and 947 of places that change from call to call (families.py: PLACES): 14 not the same, most of
them mistakes older than the day (test_attack_changes.py). 1911287607 ended the process: a change in place was recorded
with a number that another way gives its target. Wrong numbers: 1911292005 read what the call had changed in place and
no program had written yet, as a learning rate that is a tensor; 1911283762 gave a tensor other memory; 1911281413
summed the gradients of a leaf before and after a change apart, with hooks for each. Errors: 1911281434, and without
native replay 1911291644 and 1911291668. 5100043 kept replays for ever (test_compiled_lifetime.py), 5000028 named a
node otherwise. The comparison has learned 1911293725, an index that is out of range before another error. 1911281358
is of memory that NumPy shows and 1911286136 of tensors that eager mode keeps. Two wait: 1911290852, where
`backward(create_graph=True)` into a gradient that is never cleared keeps more than in eager mode, and 1911286637,
which has shown itself once: whether a second derivative that is 0 everywhere is an error ("not used") depended on the
process. Then 521 programs of such places, seeds 5400000 to 5400520: a change of a copy in place of a view where there
was no room for more paths (5400463, mended), a name (5400439). A crash of seed 1911300033, after 33 programs before
it, could not be repeated, neither alone nor after the same programs.

With changes in place at such places added: seeds 2011280000 to 2011281500, 2011300000 to 2011300773 and 2011400000 to
2011400631: three not the same, none of such places. 2011280509 changed a part of what unbind gives, as a result of a
call, which eager mode refuses (mended, test_autograd_views.py); 2011280457 looked for anomalies among gradients of
bfloat16, which eager mode could not (mended, test_autograd_graph.py); in 2011300738 Ctrl-C came where a program was
not there, and the call has not happened then. 1911290852 raises in each call, since it goes through a graph again.

Seeds 2290000000 to 2290003523, 2291000000 to 2291000581, 2292000000 to 2292000474 and 2293000000 to 2293000049, 4631
programs, at the lowest priority on two busy CPUs: five not the same. 2290000572, a wrong second derivative where an
argument's history leads to another leaf (mended, test_second_outside.py); 2290001209, an index out of range that nobody
uses (mended, test_errors_of_no_use.py). 2290001109, where a change was refused because of a detached tensor that only
the call before kept, led to wrong gradients of views of a base that lies in another order than its elements
(test_autograd_views.py); 2291000581 is `detach_()` of what detach() has made, which eager mode refused
(test_autograd_graph.py); 2291000537 is a change before Ctrl-C, which has not happened (differences.md; the comparison
waits for the compiler since). 1911290852, which had waited longer, kept what had been freed, as a list of losses did
(test_compiled_lifetime.py). 2011500741 is the same today.

Seeds 2400000000 to 2400001836, 2400100000 to 2400103166, 2400200000 to 2400201022, 2400300000 to 2400301318,
2400400000 to 2400401005, 2400500000 to 2400500261 and 2400700000 to 2400700042, 8657 programs at the lowest priority on
two busy CPUs: seven not the same. 2400000078 asked for a version that a silent change does not make
(test_replayed_through.py); 2400100028, a backward of what a call had freed and updated, was a KeyError
(test_replayed_updates.py); 2400101772 was a mistake of the same day, a number that became a vector
(test_autograd_views.py). The comparison has learned 2400300953, an index that is out of range before another error.
2400400601, where what a Function gives that returns its input was no view of it, is mended
(test_replayed_functions.py). The comparison has learned 2400500017, a leaf made of what detach() gives, which is a view
for nobody, and 2400400785, tensors that are made ready once, between two counts.
Some thousand small programs of views, detach() and changes in place, beside PyTorch and compiled, found views of
detached tensors that got the history of others in compiled calls (test_autograd_views.py); what is left of these are
refusals of backwards whose values were changed since. With all of that mended, and without native replay, seeds
2400800000 to 2400800055, 56 programs: 2400800037 counted 40 tensors more in eager mode, which keeps one for each call,
and one fewer compiled; alone it is the same.

Seeds 2500000000 to 2500000335 and 2500100000 to 2500100787, 1124 programs, with statements that freeze parameters and
thaw them inside of a call made eight and four times as frequent as they are: all the same. One of some hundred small
programs of that, written apart, was not, without native replay; it waits, and is older: a leaf that a call changes in
place twice around a backward, and freezes before another one in every second call, gets too small a gradient.
With graphs that are used again later (again.py), which found the mistake of 8950805a within 30 programs where that was
not mended: some 1300 programs natively and in Python alone, all the same but for `_set_sequence_nr` to a number that
others have (it may let nodes run before all has arrived; no program here sets one any more), 230 compiled and 275
beside PyTorch. Mended are gradients through results with memory of another shape since (test_data_attribute.py),
`.data =` of what hooks have put away, and names of what a node has saved, which nothing had loaded. Left are what
differences.md says, and beside PyTorch: `h * 1.0` may be differentiated twice, `h.min(-1, keepdim=True)[0]` is a view.

Seeds 771201 to 772353 and 881301 to 881645, 1498 programs on two busy CPUs: 771445 alone was not the same, an inference
tensor that a call saves, which differences.md says and the comparison knows since, as it does checkpoints whose
parameters change before backward. What the hour found came from other programs, one argument or two of PyTorch's own
samples changed at random (test_found_arguments.py): threads that wrote vectors of truths across their borders
(test_teams.py), and 30 mistakes of single functions.

Seeds 771000 to 771507, 508 programs: one not the same, which counts tensors at the limit of the count (eager mode keeps
the base of a detached tensor, a compiled call does not). Beside PyTorch 990000 to 990193, 194 programs: 990085 ends
PyTorch itself, in a hook; of the seven others three were looked at: rounding in RMSprop, `array += tensor`, which is an
error in PyTorch, and a function from linearize, whose gradient PyTorch leaves out.
"""

import sys
from pathlib import Path

# The generators and comparisons of the test-suite are modules beside this package.
_TESTS = str(Path(__file__).parents[1])
if _TESTS not in sys.path:
    sys.path.append(_TESTS)
