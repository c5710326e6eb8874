"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

from . import cpu as cpu
from . import cuda as cuda
from . import cudnn as cudnn
from . import mkl as mkl
from . import mkldnn as mkldnn
from . import mps as mps
from . import openmp as openmp
from . import opt_einsum as opt_einsum
