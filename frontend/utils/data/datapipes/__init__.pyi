"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

from ....utils.data import DFIterDataPipe as DFIterDataPipe
from ....utils.data import DataChunk as DataChunk
from ....utils.data import IterDataPipe as IterDataPipe
from ....utils.data import MapDataPipe as MapDataPipe
from ....utils.data import argument_validation as argument_validation
from . import datapipe as datapipe
from ....utils.data import functional_datapipe as functional_datapipe
from ....utils.data import guaranteed_datapipes_determinism as guaranteed_datapipes_determinism
from . import iter as iter
from ....utils.data import non_deterministic as non_deterministic
from ....utils.data import runtime_validation as runtime_validation
from ....utils.data import runtime_validation_disabled as runtime_validation_disabled
