"""While weft is imported nothing is collected: what an import makes stays, and looking through it again and again takes
a tenth of the time."""

import gc


class uncollected:
    """A block in which the collector of garbage rests, if it was at work. What the block makes counts as old then, and
    so does what is young before it."""

    def __enter__(self):
        self.was_enabled = gc.isenabled()
        gc.disable()

    def __exit__(self, *exception):
        if self.was_enabled:
            if not gc.get_freeze_count():  # what a program has frozen stays so
                # This moves all to the oldest generation, at once; the collector would look through it first.
                gc.freeze()
                gc.unfreeze()
            gc.enable()
