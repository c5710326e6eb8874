"""Many processes: groups of them, and what they say to each other, on NumPy arrays. MPI carries it.

group.py      who is in a group, the communicators it has, and the works under way in it
work.py       one collective, as phases that go on without waiting for each other
exchanges.py  the collectives themselves
messages.py   from one process to another
monitored.py  a barrier that says who has not come to it
sums.py       many arrays made one, in a fixed order
checks.py     whether all processes call the same
endings.py    a process that fails, or ends before the others
waiting.py    waiting without keeping a core busy
mpi.py        mpi4py, imported when a group is made
"""
